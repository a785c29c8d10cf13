package executor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
)

// A server that floods its call is passed on at a rate, in words and in bytes; what is left out shows as a gap, and later words
// come through again.
func TestRelayHasARate(t *testing.T) {
	b := buskit.Start(t)
	heard := b.Conn(t, string(schemas.Gateway))
	sub, err := heard.NC.SubscribeSync(bus.LiveSubject("tnt_a.call_1.up"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	if err := heard.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	conn := b.Conn(t, string(schemas.Toolbroker))
	now := time.Unix(1000, 0)
	g := &Gate{conn: conn, now: func() time.Time { return now }}
	w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: "call_1", Run: "run_1", Tool: "x.y"}}
	r := g.Relay(w)
	word := func(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`) }
	numbers := func(from, many int) (out []int) {
		for i := range many {
			out = append(out, from+i)
		}
		return out
	}
	n := 0
	for _, step := range []struct {
		name             string
		after            time.Duration
		say, size, heard int
	}{
		{"a burst", 0, relayedAtOnce + 500, 10, relayedAtOnce},
		{"at once after it", 0, 1, 10, 0},
		{"a second later", time.Second, relayedPerSecond + 50, 10, relayedPerSecond},
		{"a clock that went back", -time.Hour, 5, 10, 0},
		{"long after", 2 * time.Hour, relayedAtOnce + 1, 10, relayedAtOnce},
		{"large words", time.Hour, 40, 256 << 10, 16}, // 4 MiB
		{"large words a second later", time.Second, 20, 256 << 10, 16},
		{"a small one beside", 0, 1, 10, 0},
		{"a quarter of a second later", time.Second / 4, 10, 256 << 10, 4},
		{"over the size of one", time.Hour, 1, maxRelayedBytes + 1, 0},
	} {
		now = now.Add(step.after)
		for range step.say {
			r.Say("notifications/progress", word(step.size))
		}
		for _, want := range numbers(n+1, step.heard) {
			m, err := sub.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatalf("%s: %d: %v", step.name, want, err)
			}
			if got := numberOf(t, m); got != want {
				t.Fatalf("%s: word %d came, want %d", step.name, got, want)
			}
		}
		n += step.say
	}
	// What was counted says how many there were, and nothing else was said: the next word is that number.
	now = now.Add(time.Hour)
	r.Say("notifications/progress", word(10))
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || numberOf(t, m) != n+1 || w.said.count() != n+1 {
		t.Errorf("%v, %v, want word %d", m, err, n+1)
	}
}

func numberOf(t *testing.T, m *nats.Msg) int {
	t.Helper()
	var said call.News
	if err := json.Unmarshal(m.Data, &said); err != nil {
		t.Fatal(err)
	}
	return said.N
}
