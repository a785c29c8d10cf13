package executor

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas/call"
)

// Bounds of what one call says while it runs.
const (
	newsPerSecond = 10
	newsAtOnce    = 20
	maxNews       = 2 << 10 // of a text, in bytes
)

// News passes on what a call says while it runs, to whoever follows. What is too much is left out and counted, so that
// a reader sees the gap; nothing waits for anybody. Of what it is given, level, amounts and message count.
func (g *Gate) News(w *Work, now func() time.Time) func(call.News) {
	subject := bus.LiveSubject(string(w.Tenant) + "." + string(w.Admitted.Call) + ".up")
	var mu sync.Mutex
	n, left, at := 0, float64(newsAtOnce), now()
	return func(said call.News) {
		mu.Lock()
		defer mu.Unlock()
		n++
		t := now()
		left, at = min(newsAtOnce, left+newsPerSecond*t.Sub(at).Seconds()), t
		if left < 1 {
			return
		}
		left--
		said.N, said.Call, said.Run, said.Tool = n, w.Admitted.Call, w.Admitted.Run, w.Admitted.Tool
		said.Level, said.Message = short(said.Level, 20), short(said.Message, maxNews)
		raw, err := json.Marshal(said)
		if err == nil {
			_ = g.conn.NC.Publish(subject, raw) // a reader sees the gap in n
		}
	}
}

func short(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
