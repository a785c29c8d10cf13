package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// handleWays answers for streams: each is a request of its own, which becomes the stream (RFC 9110, section 7.8).
func (s *Shim) handleWays(mux *http.ServeMux) {
	var mu sync.Mutex
	listeners := map[int]*listener{}
	mux.HandleFunc("POST /ports/{port}", func(w http.ResponseWriter, r *http.Request) {
		s.become(w, func() (net.Conn, error) { return s.dial(r.Context(), portOf(r)) })
	})
	// A listener is there as long as the request that made it: one that nobody waits for any more ends.
	mux.HandleFunc("POST /listeners", func(w http.ResponseWriter, r *http.Request) {
		l, stop, err := s.listenIn(r.Context())
		if err != nil {
			problem.WriteHTTP(w, err)
			return
		}
		defer stop()
		mu.Lock()
		listeners[l.port] = l
		mu.Unlock()
		defer func() {
			mu.Lock()
			delete(listeners, l.port)
			mu.Unlock()
		}()
		if json.NewEncoder(w).Encode(wordPort{l.port}) == nil && http.NewResponseController(w).Flush() == nil {
			select {
			case <-r.Context().Done():
			case <-l.ended:
			}
		}
	})
	mux.HandleFunc("POST /listeners/{port}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		l, ok := listeners[portOf(r)]
		mu.Unlock()
		if !ok {
			problem.WriteHTTP(w, problem.New(problem.NotFound, "nothing listens on port %d", portOf(r)))
			return
		}
		s.become(w, func() (net.Conn, error) { return l.next(r.Context()) })
	})
}

type wordPort struct {
	Port int `json:"port"`
}

// portOf is a request's port; what is none is 0, which is none.
func portOf(r *http.Request) int {
	port, _ := strconv.Atoi(r.PathValue("port"))
	return port
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

// become makes a request the other end of a connection, and closes both when one is over.
func (s *Shim) become(w http.ResponseWriter, open func() (net.Conn, error)) {
	kept, err := s.reserve()
	if err != nil {
		problem.WriteHTTP(w, err)
		return
	}
	defer s.drop(kept)
	conn, err := open()
	if err == nil {
		err = s.hold(kept, conn)
	}
	if err != nil {
		problem.WriteHTTP(w, err)
		return
	}
	asker, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		problem.WriteHTTP(w, err)
		return
	}
	defer asker.Close()
	if _, err := io.WriteString(asker, switching); err != nil {
		return // whoever asked is gone
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		flow(asker, conn, conn, asker)
	}()
	flow(conn, buffered.Reader, conn, asker)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-back:
			return
		case <-tick.C:
			if hungUp(asker) {
				conn.Close() // nobody hears what would still come
			}
		}
	}
}

// hungUp says that the other end is closed, and does not only say nothing more.
func hungUp(conn net.Conn) (gone bool) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}

// flow carries bytes to their end, which it passes on. A fault ends both directions.
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

// Dial opens a stream to a port in the cage. Problems: unavailable when nobody answers there, busy when too many are open.
func (c *Client) Dial(ctx context.Context, port int) (net.Conn, error) {
	return c.become(ctx, "/ports/"+strconv.Itoa(port))
}

// become asks for a stream.
func (c *Client) become(ctx context.Context, path string) (net.Conn, error) {
	const gone = "what looks after the machine's commands does not answer"
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(c.dir, socketFile))
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, gone)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	fail := func(err error) (net.Conn, error) {
		stop()
		return nil, errors.Join(err, conn.Close())
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: shim\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", path); err != nil {
		return fail(problem.Wrap(err, problem.Unavailable, gone))
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fail(problem.Wrap(err, problem.Unavailable, gone))
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxSpec))
		if p := problem.ReadHTTP(raw); err == nil && p != nil && p.Code.Known() {
			return fail(problem.New(p.Code, "%s", p.Message))
		}
		return fail(problem.New(problem.Internal, "what looks after the machine's commands answers status %d without saying why", resp.StatusCode))
	}
	if !stop() {
		return fail(problem.Wrap(ctx.Err(), problem.Unavailable, gone))
	}
	unixConn, _ := conn.(*net.UnixConn) // unix gives no other
	return stream{unixConn, reader}, nil
}

// stream is a connection whose first bytes may have been read already.
type stream struct {
	*net.UnixConn
	reader *bufio.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.reader.Read(p) }

// Listen listens on a port in the cage that nothing outside reaches, until the listener is closed.
func (c *Client) Listen(ctx context.Context) (net.Listener, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shim/listeners", http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		cancel()
		return nil, problem.Wrap(err, problem.Unavailable, "what looks after the machine's commands does not answer")
	}
	fail := func(err error) (net.Listener, error) {
		cancel()
		return nil, errors.Join(err, resp.Body.Close())
	}
	if resp.StatusCode != http.StatusOK {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxSpec))
		if p := problem.ReadHTTP(raw); err == nil && p != nil && p.Code.Known() {
			return fail(problem.New(p.Code, "%s", p.Message))
		}
		return fail(problem.New(problem.Unavailable, "what looks after the machine's commands is older than the connector; it goes with its attachment"))
	}
	var at wordPort
	if err := json.NewDecoder(resp.Body).Decode(&at); err != nil || at.Port == 0 {
		return fail(problem.Wrap(err, problem.Unavailable, "what looks after the machine's commands does not answer"))
	}
	return &inside{client: c, ctx: ctx, cancel: cancel, body: resp.Body, port: at.Port}, nil
}

// inside is a listener in the cage.
type inside struct {
	client *Client
	ctx    context.Context // of the listener's life
	cancel context.CancelFunc
	body   io.Closer
	port   int
}

// Accept implements net.Listener.
func (l *inside) Accept() (net.Conn, error) {
	conn, err := l.client.become(l.ctx, "/listeners/"+strconv.Itoa(l.port))
	if err != nil && l.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	return conn, err
}

// Close implements net.Listener. Streams that were accepted stay.
func (l *inside) Close() error {
	l.cancel()
	return l.body.Close()
}

// Addr implements net.Listener: the address inside.
func (l *inside) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }
