package runtime_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
)

const run1 = id.Run("run_1")

// house is a runtime on a real bus, with the test as its broker.
type house struct {
	*servicekit.Kit
	t      *testing.T
	signer *permit.Signer
	page   *httptest.Server
	asked  atomic.Int64 // of the page
	stop   func()
	worker string
	deps   boot.Deps // of the service that runs
	change func(*runtime.Config)
	n      int         // scripts that value ran
	less   atomic.Bool // the agent may not call tickets.find any more
}

func start(t *testing.T, egress bool) *house {
	t.Helper()
	t.Parallel()
	h := &house{Kit: servicekit.Start(t), t: t, worker: workerkit.BuildWorker(t)}
	h.page = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.asked.Add(1); fmt.Fprint(w, "a page") }))
	t.Cleanup(h.page.Close)
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	h.signer = permit.NewSigner("key_broker", private)
	p := key.Published{Key: "key_broker", Purpose: permit.Purpose, Public: private.Public().(ed25519.PublicKey), NotBefore: time.Now().UTC()}
	p.Signature = ed25519.Sign(h.Root, p.SignedBytes())
	h.Say(schemas.Toolbroker, eventlog.Draft{Tenant: "tnt_deployment", Key: "key_broker", Event: p})
	def := agent.Defined{Agent: "agt_a", Hosting: agent.Hosted, Runtime: agent.Runtime{Enabled: true}}
	if egress {
		host := strings.TrimPrefix(h.page.URL, "http://")
		def.Runtime.Egress = []agent.Egress{{Hosts: []string{host}, Private: []string{host}}}
	}
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: def})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_js", Event: grant.Created{Grant: "grt_js", Agent: "agt_a", Selector: grant.Selector{Tool: "runtime.run_javascript"}}})
	servicekit.Answer(h.Kit, schemas.Toolbroker, "tools_visible", func(context.Context, rpc.Caller, ask.Visibility) (ask.VisibleTools, error) {
		if h.less.Load() {
			return ask.VisibleTools{Tools: []ask.VisibleTool{{Name: "tickets.close"}}}, nil
		}
		return ask.VisibleTools{Tools: []ask.VisibleTool{{Name: "tickets.find"}, {Name: "tickets.close"}, {Name: "runtime.run_javascript"}}}, nil
	})
	h.run()
	return h
}

func (h *house) run() {
	h.t.Helper()
	cfg := runtime.Config{WorkerPath: h.worker, AllowWeak: true, CallLife: time.Minute}
	if h.change != nil {
		h.change(&cfg)
	}
	h.deps = h.Deps(schemas.Runtime)
	s, err := runtime.New(cfg, h.deps)
	if err != nil {
		h.t.Fatal(err)
	}
	h.stop = h.Run(s)
}

// admit asks for a script and admits it.
func (h *house) admit(c id.Call, args string) (admission eventlog.Draft) {
	h.t.Helper()
	return h.admitAfter(run1, c, args, func() {})
}

// admitIn is admit in another run.
func (h *house) admitIn(r id.Run, c id.Call, js string) {
	h.t.Helper()
	h.admitAfter(r, c, source(js), func() {})
}

func (h *house) gateway() *bus.Conn { return h.Conn(h.t, string(schemas.Gateway)) }

// admitAfter is admit of a script of which something is on record already.
func (h *house) admitAfter(r id.Run, c id.Call, args string, recorded func()) (admission eventlog.Draft) {
	h.t.Helper()
	canonical, err := permit.CanonicalArgs(json.RawMessage(args))
	if err != nil {
		h.t.Fatal(err)
	}
	control := h.Events(schemas.Control)
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: string(r), Run: r, Event: call.Requested{Call: c, Run: r, Agent: "agt_a", Tool: "runtime.run_javascript",
		ArgsDigest: permit.Digest(canonical), Effect: string(c), Taint: []string{"hook_a"}, Body: call.Args{Args: canonical}}})
	recorded()
	now := time.Now().UTC()
	last := control[len(control)-1].Seq
	text, err := h.signer.Sign(permit.Claims{Audience: call.Script, Tenant: servicekit.Tenant, Run: r, Call: c, Tool: "runtime.run_javascript", ArgsDigest: permit.Digest(canonical),
		Grant: "grt_js", Requested: seq, Control: last, IssuedAt: now, ExpiresAt: now.Add(10 * time.Minute)})
	if err != nil {
		h.t.Fatal(err)
	}
	d := eventlog.Draft{Key: string(r), Route: call.Script, Event: call.Admitted{Call: c, Run: r, Tool: "runtime.run_javascript", Route: call.Script, Grant: "grt_js",
		Requested: seq, Control: last, Permit: text}}
	h.Say(schemas.Toolbroker, d)
	return d
}

func source(js string) string {
	raw, err := json.Marshal(map[string]string{"source": js})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// nested waits for the n-th call that a script asks for.
func (h *house) nested(n int) call.Requested {
	h.t.Helper()
	r, _ := servicekit.Await[call.Requested](h.Kit, n, func(r call.Requested) bool { return r.Parent != "" })
	return r
}

// letsGo waits until a script that waits for a person has left its worker.
func (h *house) letsGo(c id.Call) {
	h.t.Helper()
	buskit.Eventually(h.t, "the script lets go of its claim", func() bool {
		kv, err := h.Boot.JS.KeyValue(h.t.Context(), "claims")
		if err != nil {
			return false
		}
		entry, err := kv.Get(h.t.Context(), "tnt_a."+string(c))
		if err != nil {
			return false
		}
		var claim struct{ Deadline time.Time }
		return json.Unmarshal(entry.Value(), &claim) == nil && time.Now().After(claim.Deadline)
	})
}

// finish ends a nested call.
func (h *house) finish(r call.Requested, result string) {
	h.t.Helper()
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: call.Upstream, Event: call.Finished{Call: r.Call, Run: run1, Tool: r.Tool, Taint: []string{"con_tickets"},
		Body: call.Result{Result: json.RawMessage(result)}}})
}

// claimEnded says whether nobody acts on a call that somebody claimed.
func (h *house) claimEnded(c id.Call) bool {
	kv, err := h.Boot.JS.KeyValue(h.t.Context(), "claims")
	if err != nil {
		return false
	}
	entry, err := kv.Get(h.t.Context(), "tnt_a."+string(c))
	if err != nil {
		return false
	}
	var claim struct{ Deadline time.Time }
	return json.Unmarshal(entry.Value(), &claim) == nil && time.Now().After(claim.Deadline)
}

// outcome waits for how a script ended.
func (h *house) outcome(c id.Call) (f call.Finished, result string) {
	h.t.Helper()
	f, _ = servicekit.Await[call.Finished](h.Kit, 1, func(f call.Finished) bool { return f.Call == c })
	return f, string(f.Body.Result)
}

func TestParallelCalls(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`const [a, b] = await Promise.all([tools.tickets.find({q: "<a>&"}), tools.tickets.close({id: 7})]); return {a: a.owner, b};`))
	one, two := h.nested(1), h.nested(2)
	if one.Tool != "tickets.find" { // they are asked for at once
		one, two = two, one
	}
	if one.Tool != "tickets.find" || two.Tool != "tickets.close" || one.Call == two.Call || one.Parent != "call_js" || one.Agent != "agt_a" || one.Run != run1 {
		t.Errorf("%+v\n%+v", one, two)
	}
	if permit.Digest(one.Body.Args) != one.ArgsDigest || len(one.Taint) != 1 || one.Taint[0] != "hook_a" {
		t.Errorf("%+v", one)
	}
	h.finish(two, `{"content":[{"type":"text","text":"done"}]}`)
	h.finish(one, `{"content":[],"structuredContent":{"owner":"ann"}}`)
	f, result := h.outcome("call_js")
	if f.ToolError || !strings.Contains(result, `"value":{"a":"ann","b":"done"}`) || len(f.Taint) != 1 || f.Taint[0] != "con_tickets" {
		t.Errorf("%s %v", result, f.Taint)
	}
	if started, _ := servicekit.Await[script.Started](h.Kit, 1, nil); started.Call != "call_js" || started.Attempt != 1 {
		t.Errorf("%+v", started)
	}
}

// How a call ended reaches the script by its code, and the script may go on.
func TestErrorsOfCalls(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`const out = []; for (const i of [1,2,3,4]) { try { await tools.tickets.close({i}); out.push("ok") } catch (e) { out.push(e.code) } }
		try { await tools.runtime.run_javascript({source: "1"}) } catch (e) { out.push(e.code) } return out;`))
	for i, ev := range []func(c id.Call) (schemas.Event, call.Route){
		func(c id.Call) (schemas.Event, call.Route) {
			return call.Refused{Call: c, Code: "denied", Reason: "r"}, ""
		},
		func(c id.Call) (schemas.Event, call.Route) {
			return call.Failed{Call: c, Code: "upstream_error", Message: "m"}, call.Upstream
		},
		func(c id.Call) (schemas.Event, call.Route) { return call.Unknown{Call: c, Message: "m"}, call.Upstream },
		func(c id.Call) (schemas.Event, call.Route) {
			return call.Cancelled{Call: c, Reason: "r"}, call.Upstream
		},
	} {
		event, route := ev(h.nested(i + 1).Call)
		h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: route, Event: event})
	}
	if _, result := h.outcome("call_js"); !strings.Contains(result, `["denied","upstream_error","unknown_outcome","cancelled","tool_unknown"]`) {
		t.Error(result)
	}
}

// A held call ends the worker; when it was decided, the script is run again over the record, and calls nothing twice.
func TestHeldCall(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`const a = await tools.tickets.find({q: 1}); const b = await tools.tickets.close({id: a}); return [a, b, Math.random()];`))
	h.finish(h.nested(1), `{"content":[{"type":"text","text":"7"}]}`)
	second := h.nested(2)
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: second.Call, Run: run1, Agent: "agt_a", Tool: second.Tool, Digest: "d"}})
	h.letGo("call_js")
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: call.Upstream, Event: call.Admitted{Call: second.Call, Run: run1, Tool: second.Tool,
		Grant: "grt_js", Edited: 9, Body: call.Args{Args: json.RawMessage(`{"id":8}`)}}})
	h.finish(second, `{"content":[{"type":"text","text":"closed"}]}`)
	if _, result := h.outcome("call_js"); !strings.Contains(result, `[7,"closed",0.`) || !strings.Contains(result, `"notes":["a person edited the arguments of `+second.Tool+`; it was called with {\"id\":8}"]`) {
		t.Error(result)
	}
	if n := len(h.Events(schemas.Activity, "call.requested")); n != 3 {
		t.Errorf("%d calls were requested, want the script and its two", n)
	}
	if again, _ := servicekit.Await[script.Started](h.Kit, 2, nil); again.Attempt < 2 {
		t.Errorf("%+v", again)
	}
}

// A runtime that is stopped in the middle ends the script, or hands it back to the next one: either way it has one
// outcome, and nothing is called twice.
func TestStoppedInTheMiddle(t *testing.T) {
	h := start(t, false)
	admission := h.admit("call_js", source(`const a = await tools.tickets.find({q: 1}); const b = await tools.tickets.close({id: a}); return [a, b];`))
	h.finish(h.nested(1), `1`)
	second := h.nested(2)
	h.Say(schemas.Toolbroker, admission) // said twice meanwhile
	var stopping sync.WaitGroup
	stopping.Go(h.stop)
	h.finish(second, `2`)
	stopping.Wait()
	h.run()
	if _, result := h.outcome("call_js"); !strings.Contains(result, `[1,2]`) {
		t.Error(result)
	}
	if n := len(h.Events(schemas.Activity, "call.requested")); n != 3 {
		t.Errorf("%d calls were requested", n)
	}
	if n := len(h.Events(schemas.Activity, "call.finished")); n != 3 {
		t.Errorf("%d outcomes", n)
	}
}

// Cancelling the run ends its script, though it waits for a call.
func TestRunCancelled(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`return await tools.tickets.find({q: 1});`))
	h.nested(1)
	h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Event: run.Cancelled{Run: run1, Reason: "r"}})
	if got, _ := servicekit.Await[call.Cancelled](h.Kit, 1, nil); got.Call != "call_js" || got.Reason != "the run was cancelled" {
		t.Errorf("%+v", got)
	}
}

// Revoking the script's grant ends it although a call of it waits for a person.
func TestRevokedWhileHeld(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`return await tools.tickets.close({id: 7});`))
	r := h.nested(1)
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: r.Call, Run: run1, Digest: "d"}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_js", Event: grant.Revoked{Grant: "grt_js", Agent: "agt_a"}})
	if got, _ := servicekit.Await[call.Cancelled](h.Kit, 1, nil); got.Call != "call_js" {
		t.Errorf("%+v", got)
	}
}

func TestFetch(t *testing.T) {
	none := start(t, false)
	none.admit("call_js", source(fmt.Sprintf(`try { await fetch(%q); return "fetched" } catch (e) { return e.code }`, none.page.URL)))
	if _, result := none.outcome("call_js"); !strings.Contains(result, `"value":"fetch_disabled"`) {
		t.Errorf("without a rule: %s", result)
	}
	if n := none.asked.Load(); n != 0 {
		t.Errorf("the page was asked %d times", n)
	}
}

func TestFetchByItsRule(t *testing.T) {
	h := start(t, true)
	h.admit("call_js", source(fmt.Sprintf(`const out = []; for (const u of [%q, "http://127.0.0.1:1/", "http://169.254.169.254/", "http://example.com/", "file:///etc/passwd"]) {
		try { const r = await fetch(u); out.push(await r.text()) } catch (e) { out.push(e.code) } } return out;`, h.page.URL)))
	f, result := h.outcome("call_js")
	if !strings.Contains(result, `"value":["a page","fetch_blocked","fetch_blocked","fetch_blocked","fetch_blocked"]`) && !strings.Contains(result, `"a page","denied"`) {
		t.Error(result)
	}
	if len(f.Taint) != 1 || !strings.HasPrefix(f.Taint[0], "fetch:127.0.0.1") || h.asked.Load() != 1 {
		t.Errorf("taint %v, the page was asked %d times", f.Taint, h.asked.Load())
	}
	fetched, _ := servicekit.Await[script.Fetched](h.Kit, 1, nil)
	if fetched.Status != 200 || fetched.Bytes != 6 || len(fetched.Body.Hops) != 1 || fetched.Body.Hops[0].Address == "" {
		t.Errorf("%+v", fetched)
	}
}

// What is no script is answered, and runs nothing.
func TestArguments(t *testing.T) {
	h := start(t, false)
	n := 0
	for name, args := range map[string]string{"no source": `{}`, "an empty source": `{"source":""}`, "a number": `{"source":7}`, "null": `{"source":null}`, "more": `{"source":"1","timeout":1}`} {
		n++
		c := id.Call(fmt.Sprint("call_", n))
		h.admit(c, args)
		got, _ := servicekit.Await[call.Failed](h.Kit, 1, func(f call.Failed) bool { return f.Call == c })
		if got.Code != string(problem.Invalid) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if n := len(h.Events(schemas.Activity, "script.started")); n != 0 {
		t.Errorf("%d scripts were started", n)
	}
	for name, c := range map[string]struct{ js, want string }{
		"oversize":       {"return 1 //" + strings.Repeat("x", 64<<10), "65536"},
		"no syntax":      {"return (", "syntax_error"},
		"throws":         {`throw new Error("boom")`, "boom"},
		"never ends":     {"while (true) {}", "cpu_limit"},
		"waits for ever": {"await new Promise(() => {})", "deadlock"},
	} {
		n++
		one := id.Call(fmt.Sprint("call_", n))
		h.admit(one, source(c.js))
		var text string
		buskit.Eventually(t, name, func() bool {
			for _, e := range h.Events(schemas.Activity, "call.finished", "call.failed") {
				switch ev, _ := e.Envelope.Decode(); ev := ev.(type) {
				case call.Finished:
					if ev.Call == one && ev.ToolError {
						text = string(ev.Body.Result)
					}
				case call.Failed:
					if ev.Call == one {
						text = ev.Code + " " + ev.Message
					}
				}
			}
			return text != ""
		})
		if !strings.Contains(text, c.want) {
			t.Errorf("%s ends with %s", name, text)
		}
	}
}
