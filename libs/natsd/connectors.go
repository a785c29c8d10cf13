package natsd

import (
	"net"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/execwarden/execwarden/libs/bus"
)

// connectorOptions lets customers' machines in by WebSocket. Whom the server does not know, it asks the environment
// registry about, which answers in the issuer's name; services never come this way.
func (s *Server) connectorOptions(opts *server.Options) error {
	issuer, err := s.issuer.PublicKey()
	if err != nil {
		return err
	}
	opts.AuthCallout = &server.AuthCallout{Issuer: issuer, Account: "$G"}
	for _, u := range bus.Users() {
		opts.AuthCallout.AuthUsers = append(opts.AuthCallout.AuthUsers, u.Name)
	}
	opts.AuthTimeout = bus.CalloutWithin.Seconds()
	opts.AlwaysEnableNonce = true // a connector proves its key by signing it
	opts.Websocket = server.WebsocketOpts{Host: "127.0.0.1", Port: s.websocket, NoTLS: true}
	return nil
}

// freePort finds a port that connectors' connections come in on as long as this process lives, also after a restart of
// the server in it.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// WebsocketURL is where connectors' connections go in. It listens on this machine only: the gateway passes them on.
func (s *Server) WebsocketURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.websocket))
}

// CalloutSeed is the secret half of the key in whose name the environment registry lets connectors in. It is made anew at
// each start, like the passwords, and never leaves the process.
func (s *Server) CalloutSeed() string {
	seed, _ := s.issuer.Seed() // a pair that was made here has one
	return string(seed)
}
