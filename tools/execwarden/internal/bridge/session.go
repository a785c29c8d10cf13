package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// session is that of protocols before 2026-07-28. A client that speaks over standard input knows of none, so that one which the
// server has forgotten is begun again for it, with the client's own words.
type session struct {
	renewing sync.Mutex // held while one is begun again

	mu      sync.Mutex
	first   *message // initialize
	id      string
	version string
	stop    context.CancelFunc // of the stream that is listened to
	over    bool               // nothing is listened to any more
}

func (s *session) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first != nil
}

// began remembers a session that the server gives.
func (s *session) began(first *message, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.id, s.version = first, id, ""
}

// agreed reads the version of the protocol from the answer to initialize.
func (s *session) agreed(answer []byte) {
	var m struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &m) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.version = m.Result.Version
	}
}

// head writes the headers of a message.
func (s *session) head(h http.Header, m *message) {
	if m.modern() {
		stateless(h, m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.method == "initialize" {
		return
	}
	if s.id != "" {
		h.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		h.Set("Mcp-Protocol-Version", s.version)
	}
}

// again begins the session anew, unless that was done meanwhile. The server's answer is not passed on: the client has one.
func (s *session) again(ctx context.Context, b *Bridge, old string) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	first, done := s.first, s.id != old
	s.mu.Unlock()
	if done {
		return nil
	}
	if first == nil {
		return problem.New(problem.NotFound, "the server has forgotten the session")
	}
	quiet := New(b.cfg)
	quiet.http, quiet.out.to = b.http, discard{}
	if err := quiet.exchange(ctx, first, func() {}); err != nil {
		return err
	}
	// A crash of the server here has it begun again once more.
	if err := quiet.deliver(ctx, &message{raw: []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), method: "initialized again"}); err != nil {
		return err
	}
	s.mu.Lock()
	s.id, s.version = quiet.session.id, quiet.session.version
	s.mu.Unlock()
	b.cfg.Note("the server had forgotten the session; it was begun again")
	s.listen(b)
	return nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// listen passes on what the server says outside of any request, until the session or the bridge ends.
func (s *session) listen(b *Bridge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == "" || s.over {
		return // a server that keeps no sessions says nothing by itself
	}
	if s.stop != nil {
		s.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	b.work.Go(func() {
		defer stop()
		at, pause := place{}, b.cfg.Pause
		for {
			_, next, err := b.follow(ctx, &message{}, at)
			if err != nil || ctx.Err() != nil || b.out.failed() != nil {
				return // the server has none, or has forgotten the session: the next request begins it again
			}
			if next != at {
				pause = b.cfg.Pause
			}
			at = next
			select {
			case <-time.After(max(pause, at.pause)):
				pause = min(2*pause, 30*time.Second)
			case <-ctx.Done():
				return
			}
		}
	})
}

// quit ends what is listened to.
func (s *session) quit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.stop != nil {
		s.stop()
	}
}

// leave tells the server that the session is over.
func (s *session) leave(ctx context.Context, b *Bridge) {
	s.quit()
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	r, err := b.request(ctx, http.MethodDelete, http.NoBody)
	if err != nil {
		return
	}
	s.head(r.Header, &message{})
	if resp, err := b.http.Do(r); err == nil {
		_ = resp.Body.Close() // a server that is told nothing forgets the session by itself
	}
}
