package host

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Broker makes requests to a git server with a connection's credential, which never comes here.
type Broker interface {
	// Open begins one request. Problems say why the broker, or the git server, refuses.
	Open(ctx context.Context, q connector.GitOpen) (Lent, error)
}

// Lent is one request while it is carried, a piece at a time.
type Lent interface {
	Put(ctx context.Context, data []byte, last bool) error
	// Get gives a piece of the answer, which may be empty, and its content type once that is known.
	Get(ctx context.Context) (data []byte, kind string, last bool, err error)
	Close()
}

// Borrow sets who makes git requests.
func (h *Host) Borrow(b Broker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broker = b
}

// borrowing is a git server in the cage, for one call: it listens on a port that only commands of the attachment reach, and
// hands on what git asks of the call's repository. It is there as long as the call.
type borrowing struct {
	broker Broker
	open   connector.GitOpen // of the call
	path   string            // of its repository, with a slash behind it
	does   string            // the one service that it asks for
	served sync.WaitGroup
	server *http.Server

	mu      sync.Mutex
	closed  bool
	fault   error  // the first
	pushing bool   // some of a push was sent
	whole   bool   // all of one was, or may have been, whatever else is asked for after that
	refs    advert // what the git server had before
}

func (h *Host) borrow(ctx context.Context, p *place, o connector.Order, l machine.Lent) (b *borrowing, port int, err error) {
	h.mu.Lock()
	via := h.broker
	h.mu.Unlock()
	if via == nil {
		return nil, 0, problem.New(problem.Unavailable, "the machine is not connected")
	}
	listener, err := p.shim.Listen(ctx)
	if err != nil {
		return nil, 0, err
	}
	at, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, 0, errors.Join(problem.New(problem.Internal, "the cage listens on no port"), listener.Close())
	}
	does := "git-upload-pack"
	if l.Tool == machine.LentPush {
		does = "git-receive-pack"
	}
	b = &borrowing{broker: via, does: does, path: "/" + l.Owner + "/" + l.Name + ".git/",
		open: connector.GitOpen{Attachment: o.Attachment, Epoch: o.Epoch, Run: o.Run, Call: o.Call, Requested: o.Requested}}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	b.served.Go(func() { _ = b.server.Serve(listener) }) // it ends by Close
	return b, at.Port, nil
}

// Close ends the server with everything that it carries. The first fault is what whoever called is told.
func (b *borrowing) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	_ = b.server.Close() // the listener is closed by it
	b.served.Wait()
	return b.fault
}

// enter counts a request, unless the call is over.
func (b *borrowing) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.served.Add(1)
	}
	return !b.closed
}

// ServeHTTP takes the four requests of smart HTTP on the call's repository (gitprotocol-http), and no other.
func (b *borrowing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.enter() {
		return
	}
	defer b.served.Done()
	q := b.open
	rest, mine := strings.CutPrefix(r.URL.EscapedPath(), b.path)
	switch {
	case !mine:
		b.refuse(w, r, problem.New(problem.Denied, "%.200q is not the repository of the call", r.URL.Path))
		return
	case r.Method == http.MethodGet && rest == "info/refs" && r.URL.RawQuery == "service="+b.does:
		q.Refs, q.Service = true, b.does
	case r.Method == http.MethodPost && rest == b.does:
		q.Service, q.Gzip = b.does, r.Header.Get("Content-Encoding") == "gzip"
	default:
		b.refuse(w, r, problem.New(problem.Denied, "%s %.200q is nothing that the call asks of a repository", r.Method, r.URL.RequestURI()))
		return
	}
	q.Protocol = r.Header.Get("Git-Protocol")
	lent, err := b.broker.Open(r.Context(), q)
	if err != nil {
		b.refuse(w, r, err)
		return
	}
	whole := false
	defer func() {
		if !whole {
			lent.Close()
		}
	}()
	if !q.Refs {
		if q.Service == "git-receive-pack" {
			b.mu.Lock()
			b.pushing = true
			b.mu.Unlock()
		}
		if err := b.send(r, lent); err != nil {
			b.refuse(w, r, err)
			return
		}
	}
	for begun := false; ; {
		data, kind, last, err := lent.Get(r.Context())
		switch {
		case err != nil && !begun:
			b.refuse(w, r, err)
			return
		case err != nil:
			b.note(r, err)
			panic(http.ErrAbortHandler) // git sees that it is cut off
		}
		if kind != "" && !begun {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache")
			begun = true
		}
		if q.Refs {
			b.mu.Lock()
			b.refs.add(data)
			b.mu.Unlock()
		}
		if _, err := w.Write(data); err != nil {
			return // git is gone
		}
		if whole = last; last {
			return
		}
	}
}

// asking is what git sends before a push that is large, to see whether it may: commands of nothing.
const asking = "0000"

// send hands a request's body on.
func (b *borrowing) send(r *http.Request, lent Lent) error {
	piece := make([]byte, connector.MaxPiece)
	for sent := 0; ; {
		n, err := io.ReadFull(r.Body, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return problem.Wrap(err, problem.Cancelled, "git was cut off")
		}
		if sent += n; last && (sent != len(asking) || string(piece[:n]) != asking) {
			b.mu.Lock()
			b.whole = true // before it is: what becomes of it may not be known
			b.mu.Unlock()
		}
		if err := lent.Put(r.Context(), piece[:n], last); err != nil || last {
			return err
		}
	}
}

// refuse answers git in words. It shows those of the first request; later ones are told in the call's result.
func (b *borrowing) refuse(w http.ResponseWriter, r *http.Request, err error) {
	b.note(r, err)
	d := problem.DetailOf(err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden) // whatever it is: git asks for no credential then
	_, _ = io.WriteString(w, d.Message+"\n")
}

// note keeps the first fault; what fails because git is gone is none.
func (b *borrowing) note(r *http.Request, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil && r.Context().Err() == nil {
		b.fault = err
	}
}
