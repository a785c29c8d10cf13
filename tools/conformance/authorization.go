package conformance

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// The suite's scenarios for an authorization server: what it says of itself, and the code grant, in which a person consents.
const (
	announced = "authorization-server-metadata-endpoint"
	codeGrant = "authorization-code-grant"
)

// authorization runs the leg of an authorization server. The suite prints the address that a browser is to go to.
func (s *site) authorization(ctx context.Context, t tree, keep string) (*leg, error) {
	p, err := s.seat(ctx)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	id, err := s.registerClient(ctx, "suite", "http://127.0.0.1:"+strconv.Itoa(port)+"/callback")
	if err != nil {
		return nil, err
	}
	l := newLeg(authorizationLeg, "", announced, codeGrant)
	api := s.warden.At().API
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	consented := make(chan error, 1)
	at, asked := "", false
	err = s.run(ctx, t, keep, l, &lines{hear: func(line string) {
		if strings.HasPrefix(line, api+"/oauth/authorize?") {
			at = line
		}
		if at != "" && !asked && strings.HasPrefix(line, "Callback server started") { // it can be led back to
			asked = true
			go func() {
				err := p.letIn(ctx, at, clientsAgent)
				if err != nil {
					give(err) // the suite would wait for minutes
				}
				consented <- err
			}()
		}
	}}, "--url", api, "--client-id", id, "--port", strconv.Itoa(port), "--resource", api+"/mcp")
	if asked {
		if no := <-consented; no != nil {
			return l, no
		}
	}
	return l, err
}

// lines is a writer that hears whole lines.
type lines struct {
	hear func(string)
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		l.hear(string(line))
	}
}

// registerClient registers a client that members log in with, and gives its client_id.
func (s *site) registerClient(ctx context.Context, name, redirect string) (id string, err error) {
	var made struct {
		ClientID string `json:"client_id"`
	}
	err = s.ask(ctx, http.MethodPut, "/v1/clients/"+name, map[string]any{"redirects": []string{redirect}}, &made)
	return made.ClientID, err
}

// freePort gives a port that nobody listens at: who is to listen there takes no socket.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
