package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Ways in and out of a cage. Its network may be one that nothing else reaches, also not the shim: the launcher, which is
// in it, opens the socket and passes it on.
const (
	wayIn  = "dial"   // to a port in the cage
	wayOut = "listen" // on a port in the cage
)

// Bounds of the ways of one attachment. What flows on a way waits for who reads it: in between is a buffer of io.Copy in
// each direction, and the kernel's.
const (
	maxWays    = 64 // listeners and streams
	dialWithin = 5 * time.Second
	askWithin  = 10 * time.Second
)

// open opens a way, in the launcher.
func (l *launcher) open(what launch) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	file, err := what.open(ctx)
	if err != nil {
		l.say(launched{ID: what.ID, Fault: plain(err)})
		return
	}
	l.say(launched{ID: what.ID, file: file})
	file.Close()
}

func (what launch) open(ctx context.Context) (*os.File, error) {
	var socket interface {
		io.Closer
		File() (*os.File, error)
	}
	switch what.Way {
	case wayIn:
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(what.Port)))
		if err != nil {
			return nil, err
		}
		socket, _ = conn.(*net.TCPConn) // tcp gives no other
	case wayOut:
		var c net.ListenConfig
		listener, err := c.Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		socket, _ = listener.(*net.TCPListener)
	default:
		return nil, fmt.Errorf("there is no way %.20q", what.Way)
	}
	defer socket.Close()
	return socket.File()
}

// ask has the launcher open a way.
func (s *Shim) ask(ctx context.Context, what launch) (*os.File, error) {
	heard := make(chan launched, 1)
	s.mu.Lock()
	s.asked++
	what.ID = "way." + strconv.Itoa(s.asked) // no command's: those have no dot
	s.waiting[what.ID] = heard
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, what.ID)
		s.mu.Unlock()
		select {
		case w := <-heard: // it came when nobody waited any more
			if w.file != nil {
				w.file.Close()
			}
		default:
		}
	}()
	raw, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	if err := unix.Sendmsg(int(s.socket.Fd()), raw, nil, nil, 0); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "what holds the commands does not answer")
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	select {
	case w := <-heard:
		if w.file == nil {
			return nil, problem.New(problem.Unavailable, "%.300s", w.Fault)
		}
		return w.file, nil
	case <-s.lost:
	case <-ctx.Done():
	}
	return nil, problem.New(problem.Unavailable, "what holds the commands does not answer")
}

// way is one that is open, or about to be.
type way struct{ socket io.Closer }

// reserve makes room for a way until it is dropped. Problems: busy when there are as many as may be, denied when the
// attachment ends.
func (s *Shim) reserve() (*way, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return nil, problem.New(problem.Denied, "the attachment is ending")
	case len(s.ways) >= maxWays:
		return nil, problem.New(problem.Busy, "%d connections are open, which is the most of one attachment", maxWays)
	}
	w := &way{}
	s.ways[w] = true
	return w, nil
}

// hold has a socket closed with the attachment.
func (s *Shim) hold(w *way, socket io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.socket = socket
	if s.ending {
		return problem.New(problem.Denied, "the attachment is ending")
	}
	return nil
}

func (s *Shim) drop(w *way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ways, w)
	if w.socket != nil {
		_ = w.socket.Close() // it may be closed
	}
}

// endWays closes all ways; whoever looks after one drops it then.
func (s *Shim) endWays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.ways {
		if w.socket != nil {
			_ = w.socket.Close() // it may be closed
		}
	}
}

// shared says that the cage's network is the machine's, where others than its commands listen and connect.
func (s *Shim) shared() bool { return s.cfg.Rules.Network && s.cfg.Rules.Container == nil }

// dial opens a stream to a port in the cage. In the machine's own network it has to be a command of this attachment that
// listens there.
func (s *Shim) dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, problem.New(problem.Invalid, "port %d is outside 1 to 65535", port)
	}
	if s.shared() && !s.listens(port) {
		return nil, problem.New(problem.NotFound, "no command of this attachment listens on port %d", port)
	}
	file, err := s.ask(ctx, launch{Way: wayIn, Port: port})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileConn(file)
}

// listener hands on what connects to a port in the cage.
type listener struct {
	net.Listener
	port  int
	comes chan net.Conn
	done  chan struct{} // closed when nobody wants it any more
	ended chan struct{} // closed when nothing comes any more
}

func (l *listener) next(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-l.comes:
		return conn, nil
	case <-l.ended:
	case <-ctx.Done():
	}
	return nil, problem.New(problem.NotFound, "nothing listens on port %d any more", l.port)
}

// listenIn listens on a port in the cage until stop is called.
func (s *Shim) listenIn(ctx context.Context) (l *listener, stop func(), err error) {
	w, err := s.reserve()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			s.drop(w)
		}
	}()
	file, err := s.ask(ctx, launch{Way: wayOut})
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	socket, err := net.FileListener(file)
	if err != nil {
		return nil, nil, err
	}
	at, ok := socket.Addr().(*net.TCPAddr)
	if !ok {
		return nil, nil, errors.Join(errors.New("the launcher passed no TCP socket"), socket.Close())
	}
	l = &listener{Listener: socket, port: at.Port, comes: make(chan net.Conn), done: make(chan struct{}), ended: make(chan struct{})}
	if err := s.hold(w, l); err != nil {
		return nil, nil, err
	}
	go func() {
		defer close(l.ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if s.shared() && !s.connects(conn) {
				conn.Close() // somebody else on the machine
				continue
			}
			select {
			case l.comes <- conn:
			case <-l.done:
				conn.Close()
				return
			}
		}
	}()
	return l, func() {
		close(l.done)
		s.drop(w)
		<-l.ended
	}, nil
}
