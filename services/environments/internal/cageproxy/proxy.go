// Package cageproxy is the way out that commands have where the policy's network is targets: an HTTP proxy that is reached
// from inside their cage alone, and asks for what the policy lists alone.
package cageproxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// Bounds of a proxy. How many connections are open at once is bounded by the cage's shim.
const (
	headWithin = 10 * time.Second
	maxHead    = 64 << 10
	retry      = 50 * time.Millisecond // while as many connections are open as may be
)

// Proxy asks what is listed. Its counts are of all attachments since the connector began.
type Proxy struct {
	ways *egress.Client
	log  *slog.Logger

	allowed, refused atomic.Int64
}

// New makes a proxy of the ways out that there are; nil where there is none.
func New(rules []egress.Rule, log *slog.Logger) (*Proxy, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	ways, err := egress.New(rules...)
	if err != nil {
		return nil, err
	}
	return &Proxy{ways: ways, log: log}, nil
}

// Counts are how many requests and tunnels were let out, and how many were not.
func (p *Proxy) Counts() (allowed, refused int64) { return p.allowed.Load(), p.refused.Load() }

// Serve takes connections of one attachment until ctx ends, or the listener does. It returns when all of them are closed.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, attachment string) {
	s := &session{proxy: p, log: p.log.With("attachment", attachment), open: map[net.Conn]bool{}}
	server := &http.Server{Handler: s, ReadHeaderTimeout: headWithin, MaxHeaderBytes: maxHead, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.Serve(patient{l, ctx})
	if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("commands have no way out until the next one begins", "err", err)
	}
	stop()
	_ = server.Close() // what it has open ends
	_ = l.Close()
	s.end()
}

// patient waits while as many connections are open as may be.
type patient struct {
	net.Listener
	ctx context.Context
}

func (l patient) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || problem.CodeOf(err) != problem.Busy {
			return conn, err
		}
		select {
		case <-l.ctx.Done():
			return nil, net.ErrClosed
		case <-time.After(retry):
		}
	}
}

// session is the connections of one attachment.
type session struct {
	proxy   *Proxy
	log     *slog.Logger
	working sync.WaitGroup

	mu   sync.Mutex
	over bool
	open map[net.Conn]bool // of tunnels
}

// ServeHTTP implements http.Handler.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return // its connection is closed
	}
	defer s.working.Done()
	switch {
	case r.Method == http.MethodConnect:
		s.tunnel(w, r)
	case r.URL.IsAbs() && r.URL.Scheme == "http" && r.URL.User == nil:
		s.forward(w, r)
	default:
		http.Error(w, "this is a proxy: it takes CONNECT, and requests with the whole http URL and no user in it", http.StatusBadRequest)
	}
}

func (s *session) dial(ctx context.Context, to string) (net.Conn, error) {
	conn, err := s.proxy.ways.Dial(ctx, to)
	if problem.CodeOf(err) == problem.Denied {
		s.proxy.refused.Add(1)
		s.log.Info("a command's connection is refused", "to", clip(to), "rule", localpolicy.TargetsRule)
		return nil, localpolicy.TargetDenied("%s is not listed, or leads to an address that is never asked", clip(to))
	}
	if err != nil {
		return nil, err
	}
	s.proxy.allowed.Add(1)
	s.log.Info("a command is connected", "to", clip(to), "address", conn.RemoteAddr())
	return conn, nil
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), 300)], "") }

// refuse answers in place of the target.
func refuse(w http.ResponseWriter, err error) {
	d := problem.DetailOf(err)
	status := http.StatusBadGateway
	if d.Code == problem.Denied {
		status = http.StatusForbidden
	}
	w.Header().Set("X-Execwarden-Error", string(d.Code))
	http.Error(w, d.Message, status)
}

// tunnel connects a command with what it names. Who is at the other end is the command's to verify.
func (s *session) tunnel(w http.ResponseWriter, r *http.Request) {
	to := r.RequestURI // as it was said: what else is in it was left out of Host
	if _, _, err := net.SplitHostPort(to); err != nil {
		refuse(w, problem.New(problem.Denied, "CONNECT names a host and a port"))
		return
	}
	there, err := s.dial(r.Context(), to)
	if err != nil {
		refuse(w, err)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, problem.Wrap(err, problem.Internal, "the connection cannot be made a tunnel"))
		return
	}
	defer here.Close()
	if !s.keep(here) {
		return
	}
	defer s.drop(here)
	_ = here.SetDeadline(time.Time{}) // the head's
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		flow(here, there, here, there)
	}()
	flow(there, buffered.Reader, here, there)
	<-back
}

// flow carries bytes to their end, and passes the end on. A fault ends both directions.
func flow(to net.Conn, from io.Reader, ends ...net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		for _, c := range ends {
			_ = c.Close() // it may be closed
		}
	}
}

// enter lets a request begin until the end has.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.working.Add(1)
	}
	return !s.over
}

func (s *session) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.open[conn] = true
	}
	return !s.over
}

func (s *session) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// end closes the tunnels that are open, and waits for everybody.
func (s *session) end() {
	s.mu.Lock()
	s.over = true
	for conn := range s.open {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.working.Wait()
}

// forward asks for a plain request. Each has a connection of its own, whose address was looked at for it.
func (s *session) forward(w http.ResponseWriter, r *http.Request) {
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHead, DisableCompression: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return s.dial(ctx, address) }}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(out *httputil.ProxyRequest) { out.Out.Host = out.In.URL.Host }, // as the URL has it, whatever the header says
		Transport:    transport,
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, asProblem(err)) },
	}
	proxy.ServeHTTP(w, r)
}

// asProblem finds the refusal in what a transport made of it.
func asProblem(err error) error {
	var p *problem.Error
	if errors.As(err, &p) {
		return p
	}
	return problem.Wrap(err, problem.Unavailable, "the target does not answer, or not as HTTP")
}
