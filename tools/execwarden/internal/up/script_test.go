package up

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"net/http"
	"net/http/httptest"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/sample/loopback"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// marks is a provider that counts effects: `mark` and `seal` have one each per idempotency key, as a good API does, and
// answer a repeated request as the first.
type marks struct {
	*httptest.Server
	mu      sync.Mutex
	effects map[string]int // by tool and argument
	keys    map[string]bool
	gate    *gate
}

// gate stops one request at the provider, before its effect or after.
type gate struct {
	what    string // tool and argument
	after   bool
	reached chan struct{}
	until   chan struct{}
}

type mark struct {
	I int `json:"i"`
}

func newMarks(t *testing.T) *marks {
	m := &marks{effects: map[string]int{}, keys: map[string]bool{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "marks", Version: "1"}, nil)
	closed := false
	for _, name := range []string{"mark", "seal"} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Makes a mark.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &closed, IdempotentHint: true, OpenWorldHint: &closed}},
			func(ctx context.Context, r *mcp.CallToolRequest, in mark) (*mcp.CallToolResult, any, error) {
				key, _ := r.Params.Meta["execwarden/effect"].(string)
				return nil, nil, m.make(ctx, fmt.Sprintf("%s %d", name, in.I), key)
			})
	}
	m.Server = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

func (m *marks) make(ctx context.Context, what, key string) error {
	if key == "" {
		return errors.New("no idempotency key")
	}
	m.mu.Lock()
	g := m.gate
	if g != nil && g.what == what {
		m.gate = nil
	} else {
		g = nil
	}
	m.mu.Unlock()
	if g != nil && !g.after {
		close(g.reached)
		<-g.until
		return errors.New("cut off")
	}
	m.mu.Lock()
	if !m.keys[key] {
		m.keys[key] = true
		m.effects[what]++
	}
	m.mu.Unlock()
	if g != nil {
		close(g.reached)
		<-g.until
	}
	return ctx.Err()
}

// stopAt has the next request of a kind wait.
func (m *marks) stopAt(what string, after bool) *gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gate = &gate{what: what, after: after, reached: make(chan struct{}), until: make(chan struct{})}
	return m.gate
}

func (m *marks) count() (effects int, doubled []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, n := range m.effects {
		effects += n
		if n > 1 {
			doubled = append(doubled, what)
		}
	}
	return effects, doubled
}

// twenty calls at once, two of which a person has to approve, and one more after them all.
const twenty = `const answers = await Promise.all(Array.from({length: 20}, async (_, i) => {
	await (i === 3 || i === 7 ? tools.marks.seal({i}) : tools.marks.mark({i}));
	return i * i;
}));
await tools.marks.mark({i: 99});
return answers.join(" ");`

// useMarks sets up an agent whose model runs one script with the provider's tools.
func (w *world) useMarks(m *marks, source string) {
	w.t.Helper()
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-marks", Turns: []scriptmodel.Turn{
		{Calls: []scriptmodel.Call{{Tool: "runtime__run_javascript", Args: map[string]string{"source": source}}}},
		{Text: `{{.Result "runtime__run_javascript"}}`}}})
	if err := model.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = model.Close() })
	w.defineMarks(m, model)
}

func (w *world) defineMarks(m *marks, model *loopback.Server) {
	w.t.Helper()
	put := func(g grant.Created) error { g.Agent = "agt_marker"; return w.PutGrant(w.t.Context(), g) }
	for _, err := range []error{
		w.PutConnection(w.t.Context(), connection.Defined{Connection: "con_marks", Type: connection.MCP, URL: m.URL, Private: []string{hostport(m.URL)}, Trusted: true}, ""),
		w.PutAgent(w.t.Context(), agent.Defined{Agent: "agt_marker", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Make marks."}, Runtime: agent.Runtime{Enabled: true},
			Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-marks", Private: []string{hostport(model.URL())}}}, ""),
		put(grant.Created{Grant: "grt_js", Selector: grant.Selector{Tool: "runtime.run_javascript"}, Approval: grant.Never}),
		put(grant.Created{Grant: "grt_mark", Selector: grant.Selector{Tool: "marks.mark"}, Approval: grant.Never}),
		put(grant.Created{Grant: "grt_seal", Selector: grant.Selector{Tool: "marks.seal"}, Approval: grant.Always}),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	buskit.Eventually(w.t, "the tools are listed", func() bool {
		all, err := w.Connections(w.t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) == 2
	})
}

// approveAll approves what waits until the newest run has ended.
func (w *world) approveAll() (r ask.RunRow) {
	w.t.Helper()
	buskit.Eventually(w.t, "the run ends", func() bool {
		list, err := w.Approvals(w.t.Context(), true)
		if err != nil {
			return false
		}
		for _, a := range list {
			w.approve(a)
		}
		page, err := w.Runs(w.t.Context(), 1, "")
		if err != nil || len(page.Runs) == 0 {
			return false
		}
		r = page.Runs[0]
		return !r.Ended.IsZero()
	})
	return r
}

// waits waits until n approvals wait, and gives them.
func (w *world) waitingApprovals(n int) (list []ask.Approval) {
	w.t.Helper()
	buskit.Eventually(w.t, "approvals wait", func() bool {
		var err error
		list, err = w.Approvals(w.t.Context(), true)
		return err == nil && len(list) >= n
	})
	return list
}

// A script with twenty parallel calls, two of which a person approves, gives the same result whatever is killed in
// between and whenever the approvals come, and each of its calls has its effect once.
func TestScriptKilledInTheMiddle(t *testing.T) {
	worker := workerkit.BuildWorker(t)
	for name, disturb := range map[string]func(*testing.T, *world, *marks, func()){
		"not at all": func(*testing.T, *world, *marks, func()) {},
		"after one approval, before the other": func(t *testing.T, w *world, m *marks, kill func()) {
			w.approve(w.waitingApprovals(1)[0])
			kill()
		},
		"before any approval": func(t *testing.T, w *world, m *marks, kill func()) {
			w.waitingApprovals(1)
			kill()
		},
		"while an approved call is with the provider, before its effect": func(t *testing.T, w *world, m *marks, kill func()) {
			g := m.stopAt("seal 7", false)
			w.approveUntil(g.reached)
			kill()
			close(g.until)
		},
		"after the effect, before its outcome is recorded": func(t *testing.T, w *world, m *marks, kill func()) {
			g := m.stopAt("seal 7", true)
			w.approveUntil(g.reached)
			kill()
			close(g.until)
		},
		"after all twenty outcomes are recorded": func(t *testing.T, w *world, m *marks, kill func()) {
			g := m.stopAt("mark 99", true)
			w.approveUntil(g.reached)
			kill()
			close(g.until)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorldAround(t), newMarks(t)
			c := w.spawn(worker)
			t.Cleanup(func() { c.kill(t) })
			w.awaitChild(c)
			w.useMarks(m, twenty)
			if _, err := w.StartRun(t.Context(), "marker", "go"); err != nil {
				t.Fatal(err)
			}
			disturb(t, w, m, func() {
				c.kill(t)
				c = w.spawn(worker)
				w.awaitChild(c)
			})
			r := w.approveAll()
			if r.State != "completed" || !strings.Contains(r.Message, `"value":"0 1 4 9 16 25 36 49 64 81 100 121 144 169 196 225 256 289 324 361"`) {
				t.Errorf("the run ended %s: %s", r.State, r.Message)
			}
			if n, doubled := m.count(); n != 21 || len(doubled) != 0 {
				t.Errorf("%d effects, want 21; %v more than once", n, doubled)
			}
			w.mustVerify()
		})
	}
}

// approveUntil approves what waits until something else happens.
func (w *world) approveUntil(reached <-chan struct{}) {
	w.t.Helper()
	buskit.Eventually(w.t, "the provider is reached", func() bool {
		list, err := w.Approvals(w.t.Context(), true)
		if err != nil {
			return false
		}
		for _, a := range list {
			w.approve(a)
		}
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
}
