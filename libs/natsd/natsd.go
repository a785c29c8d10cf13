// Package natsd runs a NATS server inside this process, with the same users and permissions as a separate one.
package natsd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/bus"
)

// Config says how to run the server.
type Config struct {
	StoreDir string // where JetStream keeps its files; required
	// SyncInterval is how often files are fsynced. Zero, the default, is before every acknowledgement; anything else
	// is not safe against loss of power.
	SyncInterval time.Duration
	Listen       string // "host:port" for clients over TCP; empty: in-process only
}

// Server is a running NATS server. It can be stopped and started again behind the connections made to it.
type Server struct {
	cfg       Config
	log       *slog.Logger
	passwords map[string]string
	issuer    nkeys.KeyPair // in whose name connectors are let in
	websocket int           // the port that they come in on
	current   atomic.Pointer[server.Server]
}

// Start runs a server and waits until it takes connections.
func Start(cfg Config, log *slog.Logger) (*Server, error) {
	if cfg.StoreDir == "" {
		return nil, errors.New("natsd: StoreDir is required")
	}
	s := &Server{cfg: cfg, log: log, passwords: map[string]string{}}
	for _, u := range bus.Users() {
		var secret [24]byte
		_, _ = rand.Read(secret[:]) // never fails
		s.passwords[u.Name] = hex.EncodeToString(secret[:])
	}
	var err error
	if s.issuer, err = nkeys.CreateAccount(); err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	if s.websocket, err = freePort(); err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	return s, s.Resume()
}

// Resume starts the server again after Halt, on the same store with the same users.
func (s *Server) Resume() error {
	opts := &server.Options{
		ServerName: "execwarden", JetStream: true, StoreDir: s.cfg.StoreDir,
		SyncAlways: s.cfg.SyncInterval == 0, SyncInterval: s.cfg.SyncInterval,
		DontListen: s.cfg.Listen == "", NoSigs: true, NoLog: false,
		MaxPayload: 1 << 20, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 256 << 20,
	}
	if s.cfg.Listen != "" {
		host, port, err := net.SplitHostPort(s.cfg.Listen)
		if err != nil {
			return fmt.Errorf("natsd: listen address: %w", err)
		}
		opts.Host = host
		if opts.Port, err = net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("natsd: listen address: %w", err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	for _, u := range bus.Users() {
		opts.Users = append(opts.Users, &server.User{
			Username: u.Name, Password: s.passwords[u.Name],
			Permissions:            permissions(u),
			AllowedConnectionTypes: map[string]struct{}{jwt.ConnectionTypeStandard: {}, jwt.ConnectionTypeInProcess: {}},
		})
	}
	if err := s.connectorOptions(opts); err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	srv.SetLoggerV2(&logger{s.log}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(20 * time.Second) {
		srv.Shutdown()
		return errors.New("natsd: the server is not ready after 20 s; its log has the cause")
	}
	s.current.Store(srv)
	return nil
}

func permissions(u bus.User) *server.Permissions {
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: u.Publish},
		Subscribe: &server.SubjectPermission{Allow: u.Subscribe},
	}
	if u.Responses > 0 {
		p.Response = &server.ResponsePermission{MaxMsgs: u.Responses, Expires: u.ResponseTTL}
	}
	return p
}

// Halt stops the server and waits until its files are closed.
func (s *Server) Halt() {
	if srv := s.current.Swap(nil); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// InProcessConn implements nats.InProcessConnProvider. It answers with the current server, so that connections find
// their way back after Halt and Resume.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.current.Load()
	if srv == nil {
		return nil, errors.New("natsd: the server is stopped")
	}
	return srv.InProcessConn()
}

// URL is where clients connect over TCP, "" when the server does not listen.
func (s *Server) URL() string {
	if srv := s.current.Load(); srv != nil && s.cfg.Listen != "" {
		return srv.ClientURL()
	}
	return ""
}

// Client is the configuration of a connection to this server as one of its users.
func (s *Server) Client(user, instance string) bus.Config {
	return bus.Config{InProcess: s, User: user, Password: s.passwords[user], Instance: instance}
}

// logger passes the server's notices on. Debug and trace lines are of no use to an operator.
type logger struct{ log *slog.Logger }

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any) {
	// The passwords are random, made anew at each start, and never leave the process; WebSockets come from this machine only.
	if strings.HasPrefix(format, "Plaintext passwords") || strings.HasPrefix(format, "Websocket not configured with TLS") {
		return
	}
	l.log.Warn(fmt.Sprintf(format, v...))
}
func (l *logger) Fatalf(format string, v ...any) { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any) { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(string, ...any)          {}
func (l *logger) Tracef(string, ...any)          {}
