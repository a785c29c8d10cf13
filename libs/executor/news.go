package executor

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas/call"
)

// Bounds of what one call says while it runs.
const (
	newsPerSecond = 10
	newsAtOnce    = 20
	maxNews       = 2 << 10 // of a text, in bytes
)

// tally counts what a call says.
type tally struct {
	mu sync.Mutex
	n  int
}

func (s *tally) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// news is where a call's news go, and how they are told apart.
func (w *Work) news(n int, said call.News) (subject string, raw []byte, err error) {
	said.N, said.Call, said.Run, said.Tool = n, w.Admitted.Call, w.Admitted.Run, w.Admitted.Tool
	raw, err = json.Marshal(said)
	return bus.LiveSubject(string(w.Tenant) + "." + string(w.Admitted.Call) + ".up"), raw, err
}

// News passes on what a call says while it runs, to whoever follows. What is too much is left out and counted, so that
// a reader sees the gap; nothing waits for anybody. Of what it is given, level, amounts and message count.
func (g *Gate) News(w *Work, now func() time.Time) func(call.News) {
	if w.said == nil {
		w.said = &tally{}
	}
	s := w.said
	within := rate.NewLimiter(newsPerSecond, newsAtOnce)
	return func(said call.News) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n++
		if !within.AllowN(now(), 1) {
			return
		}
		said.Level, said.Message = short(said.Level, 20), short(said.Message, maxNews)
		if subject, raw, err := w.news(s.n, said); err == nil {
			_ = g.conn.NC.Publish(subject, raw) // a reader sees the gap in n
		}
	}
}

func short(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
