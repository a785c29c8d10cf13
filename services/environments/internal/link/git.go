package link

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/services/environments/internal/host"
)

// Times of asking the broker. A pass onto the bus lasts minutes and is renewed by connecting again: what is lost then is
// asked for once more, and a piece is the same however often.
const (
	askBroker = 5 * time.Minute  // for one piece in all: longer than a git server may be silent
	askOnce   = 45 * time.Second // longer than the broker lets a piece be waited for
	askAgain  = 500 * time.Millisecond
	openTries = 5  // that the broker is asked to begin when it says not now
	askNobody = 10 // times in a row that nobody is there, after which the broker is taken to be gone
)

// broker asks the tool broker for git requests, under this environment's subjects.
type broker struct {
	link *Link
	nc   *nats.Conn
	once time.Duration // askOnce
}

// Open implements host.Broker.
func (b broker) Open(ctx context.Context, q connector.GitOpen) (host.Lent, error) {
	raw, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	m, err := b.ask(ctx, "open", nats.Header{}, raw)
	for tries := 1; tries < openTries && notNow(err) && ctx.Err() == nil; tries++ {
		pause(ctx, askAgain)
		m, err = b.ask(ctx, "open", nats.Header{}, raw)
	}
	if err != nil {
		return nil, err
	}
	var o connector.GitOpened
	if err := json.Unmarshal(m.Data, &o); err != nil || o.Broker == "" {
		return nil, problem.New(problem.Unavailable, "the broker does not answer as one; is the connector older or newer than it?")
	}
	return &lent{broker: b, at: o}, nil
}

func (b broker) ask(ctx context.Context, to string, header nats.Header, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, askBroker)
	defer cancel()
	at := b.link.identity
	nobody := 0
	for {
		once, cancel := context.WithTimeout(ctx, b.once)
		m, err := b.nc.RequestMsgWithContext(once, &nats.Msg{Subject: bus.GitSubject(string(at.Tenant), string(at.Environment), to), Header: header, Data: data})
		cancel()
		if err == nil {
			if code := m.Header.Get(connector.HeaderGitCode); code != "" {
				return nil, problem.New(known(code), "%.500s", m.Data)
			}
			return m, nil
		}
		if errors.Is(err, nats.ErrNoResponders) {
			nobody++
		}
		if ctx.Err() != nil || nobody == askNobody || b.nc.IsClosed() {
			return nil, problem.Wrap(err, problem.Unavailable, "the broker does not answer")
		}
		pause(ctx, askAgain)
	}
}

// notNow says that a broker may do a moment later what it does not do now: it is behind, or carries as much as it may.
func notNow(err error) bool {
	code := problem.CodeOf(err)
	return err != nil && (code == problem.Busy || code == problem.Unavailable)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func known(code string) problem.Code {
	if c := problem.Code(code); c.Known() {
		return c
	}
	return problem.Upstream
}

// lent is one request of git, with the one broker that carries it.
type lent struct {
	broker
	at       connector.GitOpened
	put, got int // pieces
}

func (l *lent) header(n int) nats.Header {
	return nats.Header{connector.HeaderGit: {l.at.Stream}, connector.HeaderGitSeq: {strconv.Itoa(n)}}
}

// Put implements host.Lent.
func (l *lent) Put(ctx context.Context, data []byte, last bool) error {
	l.put++
	h := l.header(l.put)
	if last {
		h.Set(connector.HeaderGitLast, "1")
	}
	_, err := l.ask(ctx, l.at.Broker+".put", h, data)
	return err
}

// Get implements host.Lent.
func (l *lent) Get(ctx context.Context) (data []byte, kind string, last bool, err error) {
	l.got++
	m, err := l.ask(ctx, l.at.Broker+".get", l.header(l.got), nil)
	if err != nil {
		return nil, "", false, err
	}
	return m.Data, m.Header.Get(connector.HeaderGitType), m.Header.Get(connector.HeaderGitLast) != "", nil
}

// Close implements host.Lent.
func (l *lent) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, _ = l.ask(ctx, l.at.Broker+".close", l.header(0), nil) // else it is idle, and ends by that
}
