// Package loopback is the life of the sample's small servers: start on a loopback port, say the URL, close.
package loopback

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves a handler on a loopback port of its own. Embed it; the zero value with a Handler is ready to Start.
type Server struct {
	Handler http.Handler
	Port    int // 0: any free one

	url     string
	server  *http.Server
	cancel  context.CancelFunc // of every request's context
	serving chan struct{}      // closed when no connection is accepted any more
	conns   sync.WaitGroup     // connections, with the handlers on them
}

// Start begins to serve and returns. The server ends with ctx or by Close.
func (s *Server) Start(ctx context.Context) error {
	var listen net.ListenConfig
	// Never another address: these servers hold pretend secrets and no defence.
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.Port}
	ln, err := listen.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.url = "http://" + ln.Addr().String()
	s.serving = make(chan struct{})
	s.server = &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			s.conns.Add(1) // before the connection has a goroutine, so that Close cannot miss it
			return ctx
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				s.conns.Done()
			}
		},
	}
	context.AfterFunc(ctx, func() { _ = s.server.Close() })
	go func() {
		defer close(s.serving)
		_ = s.server.Serve(ln) // says only that it was closed
	}()
	return nil
}

// URL is the server's base URL, without a slash at the end. It is known once Start has returned.
func (s *Server) URL() string { return s.url }

// Close cuts every connection, and returns when no handler runs any more. It may be called again.
func (s *Server) Close() error {
	if s.server == nil {
		return errors.New("loopback: not started")
	}
	s.cancel()
	err := s.server.Close()
	<-s.serving
	s.conns.Wait()
	return err
}
