package up

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// mcpKillsVariable says how often TestMCPKilled kills. Default 3; `make kill-mcp` asks for 100.
const mcpKillsVariable = "EXECWARDEN_TEST_MCP_KILLS"

// answered is what clients were given, by what they asked for.
type answered struct {
	mu      sync.Mutex
	results map[string]bool      // by the argument of the call
	ends    map[id.Call]struct{} // calls whose end was an error
	asked   int
}

// The whole process is killed at random moments while 16 clients call over MCP. Every result that a client was given is in the
// ledger, as the outcome of its call; every call that was issued is recorded with one outcome; and the provider had no
// effect that is not accounted for.
func TestMCPKilled(t *testing.T) {
	kills := 3
	if text := os.Getenv(mcpKillsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const clients = 16
	worker := workerkit.BuildWorker(t)
	w := &mcpWorld{world: newWorldAround(t), tokens: map[string]string{}}
	c := w.spawn(worker)
	t.Cleanup(func() { c.kill(t) })
	w.awaitChild(c)
	p := provide(t, eras[without])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.grant("a", "write", "s.write")

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var at atomic.Pointer[string]
	here := w.endpoints.API
	at.Store(&here)
	got := &answered{results: map[string]bool{}, ends: map[id.Call]struct{}{}}
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer stop()
	for n := range clients {
		calling.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				got.call(ctx, *at.Load(), w.tokens["a"], fmt.Sprintf("%d-%d", n, i))
			}
		})
	}
	for range kills {
		before := got.count()
		buskit.Eventually(t, "calls are answered", func() bool { return got.count() >= before+clients })
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // the moment is random
		c.kill(t)
		c = w.spawn(worker)
		w.awaitChild(c)
		here := w.endpoints.API
		at.Store(&here)
	}
	before := got.count()
	buskit.Eventually(t, "calls are answered", func() bool { return got.count() >= before+clients })
	stop()
	calling.Wait()

	// What was cut off is taken over once its claim has lapsed; then every call that was requested has its outcome.
	var requested map[string]id.Call
	var ends map[id.Call]schemas.Event
	deadline := time.Now().Add(5 * time.Minute)
	for open := -1; open != 0; {
		requested, ends = w.tally(t)
		open = 0
		for _, c := range requested {
			if ends[c] == nil {
				open++
			}
		}
		if open > 0 && time.Now().After(deadline) {
			t.Fatalf("%d calls have no outcome", open)
		}
	}
	missing, finished, unknown := 0, 0, 0
	for arg := range got.results {
		if _, ok := ends[requested[arg]].(call.Finished); !ok {
			missing++
			t.Errorf("the result of %s was given, and the ledger has %T", arg, ends[requested[arg]])
		}
	}
	for c := range got.ends {
		if ends[c] == nil {
			missing++
			t.Errorf("the end of %s was given, and the ledger has none", c)
		}
	}
	for _, ev := range ends {
		switch ev.(type) {
		case call.Finished:
			finished++
		case call.Unknown:
			unknown++
		}
	}
	effects := int(p.effects.Load())
	if effects < finished || effects > finished+unknown {
		t.Errorf("the provider had %d effects; %d calls finished and of %d nobody knows", effects, finished, unknown)
	}
	t.Logf("%d kills; %d requests of clients, %d calls issued, %d with their outcome; %d results given, %d missing; %d effects, %d finished, %d unknown",
		kills, got.asked, len(requested), len(ends), len(got.results), missing, effects, finished, unknown)
	w.mustVerify()
}

func (a *answered) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.results)
}

// call makes one call as a client does, and notes what it was given.
func (a *answered) call(ctx context.Context, url, token, arg string) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,"name":"s__write","arguments":{"n":%q}}}`, modernMeta, arg)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mcp", strings.NewReader(body))
	if err != nil {
		return
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {without}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"s__write"}}
	a.mu.Lock()
	a.asked++
	a.mu.Unlock()
	resp, err := http.DefaultClient.Do(r)
	if err != nil { // it is dead; the next one may live
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return // cut off
	}
	var m struct {
		Result *struct{ Content []struct{ Text string } }
		Error  *struct{ Data struct{ Call id.Call } }
	}
	for line := range strings.Lines(string(raw)) {
		_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &m) // what is no message changes nothing
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case m.Result != nil && len(m.Result.Content) == 1 && strings.HasPrefix(m.Result.Content[0].Text, "effect"):
		a.results[arg] = true
	case m.Error != nil && m.Error.Data.Call != "":
		a.ends[m.Error.Data.Call] = struct{}{}
	}
}

// tally gives the calls that the ledger has, by their argument, and the outcome of each: the first counts.
func (w *mcpWorld) tally(t *testing.T) (requested map[string]id.Call, ends map[id.Call]schemas.Event) {
	t.Helper()
	requested, ends = map[string]id.Call{}, map[id.Call]schemas.Event{}
	end := func(c id.Call, ev schemas.Event) {
		if ends[c] == nil {
			ends[c] = ev
		}
	}
	for at, more := (client.Cursor{}), true; more; {
		var page client.EventPage
		var err error
		buskit.Eventually(t, "events are given out: it was started a moment ago", func() bool {
			page, err = w.Events(t.Context(), client.Filter{Kind: "call.*"}, at)
			return problem.CodeOf(err) != problem.Unavailable
		})
		must(t, err)
		for _, e := range page.Events {
			envelope, err := e.Envelope()
			must(t, err)
			ev, err := envelope.Decode()
			must(t, err)
			switch ev := ev.(type) {
			case call.Requested:
				var args struct{ N string }
				must(t, json.Unmarshal(ev.Body.Args, &args))
				if _, twice := requested[args.N]; twice {
					t.Fatalf("%s was requested twice", args.N)
				}
				requested[args.N] = ev.Call
			case call.Finished:
				end(ev.Call, ev)
			case call.Failed:
				end(ev.Call, ev)
			case call.Refused:
				end(ev.Call, ev)
			case call.Cancelled:
				end(ev.Call, ev)
			case call.Unknown:
				end(ev.Call, ev)
			}
		}
		at, more = page.Next, page.More
	}
	return requested, ends
}
