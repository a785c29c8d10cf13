package bridge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// Config says what is carried where.
type Config struct {
	URL   string // of the endpoint
	Token vault.Secret
	In    io.Reader
	Out   io.Writer
	Note  func(format string, args ...any) // for a person, on standard error

	// Pause is before the first time that the server is tried again; it doubles each time. Default: 200 ms.
	Pause time.Duration
	// Tries is how often a server that is not there is tried. Default: 6, which is about 6 seconds.
	Tries int
}

// under is a request under way.
type under struct {
	cancel context.CancelCauseFunc
	lasts  bool // it is answered by what it listens to, for as long as the client is there
}

// Bounds of one bridge.
const (
	maxOpen   = 64              // requests under way; more are refused as busy
	drainTime = 5 * time.Second // for what is under way when the client has closed its end
	leaveTime = 2 * time.Second // for the end of the session
)

// Bridge carries messages until the client closes its end.
type Bridge struct {
	cfg     Config
	http    *http.Client
	out     writer
	session session

	mu   sync.Mutex
	open map[string]*under // requests under way, by id
	last error             // of the last request that had no answer
	any  bool              // a message was answered

	work sync.WaitGroup
}

// New makes a bridge.
func New(cfg Config) *Bridge {
	if cfg.Pause == 0 {
		cfg.Pause = 200 * time.Millisecond
	}
	if cfg.Tries == 0 {
		cfg.Tries = 6
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport.MaxIdleConnsPerHost = maxOpen
	transport.DisableCompression = true // events go on as they come
	return &Bridge{cfg: cfg, out: writer{to: cfg.Out}, open: map[string]*under{}, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for one place
	}}
}

// Run carries messages. It ends when the client closes its end or reads no more, or when ctx ends. Where no message was ever
// answered it gives the problem, so that whoever starts it sees why.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.http.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(errOver)
		b.session.quit()
		b.work.Wait()
	}()

	lines := make(chan given)
	go b.read(ctx, lines) // a read of standard input cannot be ended; it ends with the program, or with what it reads from
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case g := <-lines:
			if g.err != nil {
				b.drain(ctx)
				b.session.leave(context.WithoutCancel(ctx), b)
				return b.verdict(g.err)
			}
			b.take(ctx, g)
			if err := b.out.failed(); err != nil {
				return problem.Wrap(err, problem.Unavailable, "the client does not read any more")
			}
		}
	}
}

var errOver = problem.New(problem.Cancelled, "the client has closed its end")

// given is a line of the client.
type given struct {
	raw   []byte
	whole bool
	err   error
}

func (b *Bridge) read(ctx context.Context, to chan<- given) {
	r := bufio.NewReaderSize(b.cfg.In, 64<<10)
	for {
		raw, whole, err := line(r)
		select {
		case to <- given{raw, whole, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// take sends one line on. It returns when the line is on its way, so that the server sees lines in their order.
func (b *Bridge) take(ctx context.Context, g given) {
	if len(g.raw) == 0 {
		return
	}
	if !g.whole {
		err := problem.New(problem.TooLarge, "a message is over %d bytes and was left out", maxLine)
		b.cfg.Note("%s", problem.DetailOf(err).Message)
		if id := idIn(g.raw); id != "" {
			b.refuse(id, err)
		}
		return
	}
	m, err := read(g.raw)
	if err != nil {
		b.cfg.Note("%s", problem.DetailOf(err).Message)
		return
	}
	switch {
	case m.request():
		b.begin(ctx, m)
	case m.cancels != "" && b.cancelled(m.cancels):
		// Without sessions, what cancels a request is that nobody waits for its answer: that was done.
	default:
		if err := b.deliver(ctx, m); err != nil && ctx.Err() == nil {
			b.fail(err)
			b.cfg.Note("a message of the client was not taken: %s", problem.DetailOf(err).Message)
		}
	}
}

// begin sends a request, and answers it beside.
func (b *Bridge) begin(ctx context.Context, m *message) {
	ctx, cancel := context.WithCancelCause(ctx)
	own := &under{cancel, m.method == "subscriptions/listen"}
	b.mu.Lock()
	_, twice := b.open[m.id]
	full := len(b.open) >= maxOpen
	if !twice && !full {
		b.open[m.id] = own
	}
	b.mu.Unlock()
	if twice || full {
		cancel(nil)
		err := problem.New(problem.Busy, "%d requests are under way, which is the most", maxOpen)
		if twice {
			err = problem.New(problem.Invalid, "a request with the id %s is under way", m.id)
		}
		b.refuse(m.id, err)
		return
	}
	sent := make(chan struct{})
	b.work.Go(func() {
		defer cancel(nil)
		err := b.exchange(ctx, m, sync.OnceFunc(func() { close(sent) }))
		b.mu.Lock()
		if b.open[m.id] == own {
			delete(b.open, m.id)
		}
		b.any = b.any || err == nil
		b.mu.Unlock()
		switch {
		case err == nil:
		case errors.Is(context.Cause(ctx), errCancelled), errors.Is(context.Cause(ctx), errOver): // nobody waits for an answer
		default:
			b.fail(err)
			b.cfg.Note("%s", problem.DetailOf(err).Message)
			b.refuse(m.id, err)
		}
	})
	<-sent // exchange always says so, at its end at the latest
}

// answering is said before a request's answer is written: the client may use its id again at once.
func (b *Bridge) answering(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, m.id)
}

var errCancelled = problem.New(problem.Cancelled, "the client cancelled the request")

// cancelled ends a request of the protocol without sessions.
func (b *Bridge) cancelled(id string) bool {
	if b.session.begun() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.open[id]
	if ok {
		one.cancel(errCancelled)
	}
	return ok
}

func (b *Bridge) refuse(id string, err error) { _ = b.out.write(refusal(id, err)) } // a client that is gone is seen by Run

func (b *Bridge) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = err
}

// drain lets what is under way end.
func (b *Bridge) drain(ctx context.Context) {
	over := time.NewTimer(drainTime)
	defer over.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		b.mu.Lock()
		n := 0
		for _, one := range b.open {
			if !one.lasts {
				n++
			}
		}
		b.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-look.C:
		case <-over.C:
			b.cfg.Note("%d requests were under way when the client closed its end; what they do is in the ledger", n)
			return
		case <-ctx.Done():
			return
		}
	}
}

// verdict is how the bridge ended: well, unless nothing ever came through.
func (b *Bridge) verdict(end error) error {
	if !errors.Is(end, io.EOF) {
		return problem.Wrap(end, problem.Unavailable, "the client cannot be read: %v", end)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.any {
		return nil
	}
	return b.last
}
