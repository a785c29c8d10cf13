package toolbroker

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Bounds of what one call says while it runs.
const (
	newsPerSecond = 10
	newsAtOnce    = 20
	maxNews       = 2 << 10 // of a text, in bytes
)

// news passes on what a call says while it runs, to whoever follows. What is too much is left out and counted, so that
// a reader sees the gap; nothing waits for anybody.
func (s *Service) news(w *executor.Work) func(upstream.News) {
	subject := bus.LiveSubject(string(w.Tenant) + "." + string(w.Admitted.Call) + ".up")
	var mu sync.Mutex
	n, left, at := 0, float64(newsAtOnce), s.now()
	return func(said upstream.News) {
		mu.Lock()
		defer mu.Unlock()
		n++
		now := s.now()
		left, at = min(newsAtOnce, left+newsPerSecond*now.Sub(at).Seconds()), now
		if left < 1 {
			return
		}
		left--
		raw, err := json.Marshal(call.News{N: n, Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool,
			Level: short(said.Level, 20), Progress: said.Progress, Total: said.Total, Message: short(said.Message, maxNews)})
		if err == nil {
			_ = s.deps.Conn.NC.Publish(subject, raw) // a reader sees the gap in n
		}
	}
}

func short(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
