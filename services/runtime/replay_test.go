package runtime_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
)

// grants lets the calls of tests rest on something that can be revoked alone.
func (h *house) grants() {
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_find", Event: grant.Created{Grant: "grt_find", Agent: "agt_a", Selector: grant.Selector{Tool: "tickets.find"}}})
}

// admitNested lets a nested call go, and finish gives its answer.
func (h *house) admitNested(r call.Requested) {
	h.t.Helper()
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: call.Upstream, Event: call.Admitted{Call: r.Call, Run: run1, Tool: r.Tool, Grant: "grt_find"}})
}

// asked waits until n nested calls are asked for, and gives them by their argument i.
func (h *house) askedFor(n int) map[int]call.Requested {
	h.t.Helper()
	out := map[int]call.Requested{}
	for k := range n {
		r := h.nested(k + 1)
		var args struct{ I int }
		if err := json.Unmarshal(r.Body.Args, &args); err != nil {
			h.t.Fatal(err)
		}
		out[args.I] = r
	}
	return out
}

// hold holds a call and waits until the script's worker is gone.
func (h *house) hold(r call.Requested) {
	h.t.Helper()
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: r.Call, Run: run1, Agent: "agt_a", Tool: r.Tool, Digest: "d"}})
	h.letGo("call_js")
}

// letGo waits until a script is claimed by nobody.
func (h *house) letGo(c id.Call) {
	h.t.Helper()
	buskit.Eventually(h.t, "the script lets go of its claim", func() bool { return h.claimEnded(c) })
}

// The order in which calls end decides what this script does next; the value tells which way it went.
const racing = `const order = [];
	const calls = [1, 2, 3].map(async (i) => { const v = await tools.tickets.find({i}); order.push(v); return v });
	const first = await Promise.race(calls);
	const next = await tools.tickets.find({i: 10 * first});
	await Promise.all(calls);
	const last = await tools.tickets.close({i: 100});
	return {first, next, order: order.join(""), last};`

// A script whose way depends on which of its calls ended first goes the same way when it is run again, also where the
// order of the record is not the order of asking, and gets what it got.
func TestReplayKeepsTheOrderOfAnswers(t *testing.T) {
	for name, end := range map[string][]int{"as asked": {1, 2, 3}, "backwards": {3, 2, 1}, "the middle first": {2, 1, 3}} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			h.grants()
			h.admit("call_js", source(racing))
			asked := h.askedFor(3)
			for _, r := range asked {
				h.admitNested(r)
			}
			for _, i := range end {
				h.finish(asked[i], fmt.Sprint(i))
			}
			asked = h.askedFor(4)
			h.admitNested(asked[10*end[0]])
			h.finish(asked[10*end[0]], "7")
			asked = h.askedFor(5)
			h.hold(asked[100])
			h.stop() // and by another process
			h.run()
			h.admitNested(asked[100])
			h.finish(asked[100], "8")
			_, result := h.outcome("call_js")
			if want := fmt.Sprintf(`{"first":%d,"next":7,"order":"%d%d%d","last":8}`, end[0], end[0], end[1], end[2]); !strings.Contains(result, want) {
				t.Errorf("%s, want %s", result, want)
			}
			if n := len(h.Events(schemas.Activity, "call.requested")); n != 6 {
				t.Errorf("%d calls were requested, want the script and its five", n)
			}
		})
	}
}

// Calls that end while nobody runs the script are given in the order in which they ended, and more of them than may be
// open at once do not stand in each other's way.
func TestReplayOfManyCalls(t *testing.T) {
	h := start(t, false)
	h.grants()
	h.admit("call_js", source(`const order = []; await Promise.all(Array.from({length: 40}, (_, i) => tools.tickets.find({i}).then((v) => order.push(v)))); return order;`))
	first := h.askedFor(16)
	if len(first) != 16 || first[15].Call == "" {
		t.Fatalf("%d calls are open, want those that were asked for first", len(first))
	}
	var want []int
	for i := range 8 {
		h.admitNested(first[i])
		h.finish(first[i], fmt.Sprint(i))
		want = append(want, i)
	}
	asked := h.askedFor(24)
	h.hold(asked[20])
	for i := 23; i >= 8; i-- {
		if i != 20 {
			h.admitNested(asked[i])
			h.finish(asked[i], fmt.Sprint(i))
			want = append(want, i)
		}
	}
	h.admitNested(asked[20])
	h.finish(asked[20], "20")
	want = append(want, 20)
	asked = h.askedFor(40)
	for i := 24; i < 40; i++ {
		h.admitNested(asked[i])
		h.finish(asked[i], fmt.Sprint(i))
		want = append(want, i)
	}
	_, result := h.outcome("call_js")
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(result, `"value":`+string(text)) {
		t.Errorf("%s\nwant %s", result, text)
	}
}

// What was answered under a grant that is revoked meanwhile is not answered again.
func TestReplayAsksWhetherTheGrantStands(t *testing.T) {
	h := start(t, false)
	h.grants()
	h.admit("call_js", source(`let a, b; try { a = await tools.tickets.find({i: 1}) } catch (e) { a = e.code }
		try { b = await tools.tickets.close({i: 2}) } catch (e) { b = e.message } return [a, b]`))
	one := h.nested(1)
	h.admitNested(one)
	h.finish(one, `"secret"`)
	two := h.nested(2)
	h.hold(two)
	h.less.Store(true)
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_find", Event: grant.Revoked{Grant: "grt_find", Agent: "agt_a"}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Refused{Call: two.Call, Run: run1, Tool: two.Tool, Code: "denied", Reason: "ann said no"}})
	if _, result := h.outcome("call_js"); !strings.Contains(result, `"value":["denied","ann said no"]`) {
		t.Error(result)
	}
}

// A record that is not this script's ends it, says so as data, and nothing more is called.
func TestReplayDivergence(t *testing.T) {
	for name, recorded := range map[string]call.Requested{
		"another tool":    {Tool: "tickets.close", Body: call.Args{Args: json.RawMessage(`{"i":1}`)}},
		"other arguments": {Tool: "tickets.find", Body: call.Args{Args: json.RawMessage(`{"i":2}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			r := recorded
			r.Call, r.Run, r.Agent, r.Parent, r.ArgsDigest = id.Derive[id.Call]("call_js", "1"), run1, "agt_a", "call_js", permit.Digest(recorded.Body.Args)
			h.admitAfter(run1, "call_js", source(`try { await tools.tickets.find({i: 1}) } catch {} await tools.tickets.close({i: 3})`), func() {
				h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Run: run1, Event: r})
			})
			f, result := h.outcome("call_js")
			if !f.ToolError || !strings.Contains(result, `"code":"replay_divergence"`) || !strings.Contains(result, "request 1 was a call of "+r.Tool) {
				t.Error(result)
			}
			if n := len(h.Events(schemas.Activity, "call.requested")); n != 2 {
				t.Errorf("%d calls were requested", n)
			}
		})
	}
}

// What a script asked for besides calls has its place too, also a request that nobody knows the answer of: something else
// at that place is another way, and is not done.
func TestReplayDivergenceFromWhatIsNoCall(t *testing.T) {
	fetching := script.Fetching{Call: "call_js", Run: run1, Seq: 1, Method: "POST", Digest: "d"}
	fetched := script.Fetched{Call: "call_js", Run: run1, Seq: 1, Method: "GET", Digest: "d", Code: "denied"}
	searched := script.Searched{Call: "call_js", Run: run1, Seq: 1, Body: script.Told{Query: "x", Answer: json.RawMessage("[]")}}
	for name, tc := range map[string]struct {
		recorded schemas.Event
		js, want string
	}{
		"a call after a fetch that was cut off": {fetching, `await tools.tickets.close({i: 3})`, "request 1 was a fetch before, and is a call of tickets.close now"},
		"a call after a fetch":                  {fetched, `await tools.tickets.close({i: 3})`, "request 1 was a fetch before"},
		"a call after a search":                 {searched, `await tools.tickets.close({i: 3})`, "request 1 was a search of tools before"},
		"a search after a fetch":                {fetched, `await tools.search("x")`, "request 1 was a fetch before, and is a search of tools now"},
		"an artifact after a fetch":             {fetching, `await artifacts.put("x", 1)`, "request 1 was a fetch before, and is an operation on artifacts now"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			h.admitAfter(run1, "call_js", source(tc.js), func() { h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Run: run1, Event: tc.recorded}) })
			f, result := h.outcome("call_js")
			if !f.ToolError || !strings.Contains(result, `"code":"replay_divergence"`) || !strings.Contains(result, tc.want) {
				t.Error(result)
			}
			if n := len(h.Events(schemas.Activity, "call.requested")) + len(h.Events(schemas.Activity, "artifact.kept")); n != 1 {
				t.Errorf("%d calls were requested and artifacts kept", n)
			}
		})
	}
}

// A request that is refused in the worker has its number all the same. The crash came before the first request was
// recorded and after the second was; what allowed the first is gone: the second is found in the record, and not made again.
func TestReplayOfWhatIsRefusedNow(t *testing.T) {
	for name, first := range map[string]struct{ js, code string }{
		"a tool that is not granted": {`tools.tickets.find({i: 1})`, "tool_unknown"},
		"a fetch without a rule":     {`fetch("http://127.0.0.1:1/")`, "fetch_disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			h.grants()
			h.less.Store(true)
			h.admitAfter(run1, "call_js", source(`return await Promise.all([`+first.js+`.catch((e) => e.code), tools.tickets.close({i: 2})])`), func() { h.recordClose(2) })
			r := h.nested(1)
			h.admitNested(r)
			h.finish(r, "9")
			if _, result := h.outcome("call_js"); !strings.Contains(result, `"value":["`+first.code+`",9]`) {
				t.Error(result)
			}
			if n := len(h.Events(schemas.Activity, "call.requested")); n != 2 {
				t.Errorf("%d calls were requested, want the script and its one", n)
			}
		})
	}
}

// recordClose says for an earlier life of the script that it asked for a call of tickets.close.
func (h *house) recordClose(seq int) {
	h.t.Helper()
	args := json.RawMessage(`{"i":2}`)
	h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Run: run1, Event: call.Requested{Call: id.Derive[id.Call]("call_js", fmt.Sprint(seq)), Run: run1, Agent: "agt_a", Parent: "call_js",
		Tool: "tickets.close", ArgsDigest: permit.Digest(args), Body: call.Args{Args: args}}})
}

// Nor is it made again by a script that tries once more what is refused now, and so comes to it under another number.
func TestReplayOfWhatIsRefusedTwice(t *testing.T) {
	h := start(t, false)
	h.less.Store(true)
	h.admitAfter(run1, "call_js", source(`const find = async () => { for (let n = 0; n < 2; n++) try { return await tools.tickets.find({i: 1}) } catch {} };
		const found = find(); for (let n = 0; n < 20; n++) await null; return [await tools.tickets.close({i: 2}), await found]`), func() { h.recordClose(2) })
	f, result := h.outcome("call_js")
	if !f.ToolError || !strings.Contains(result, `"code":"replay_divergence"`) || !strings.Contains(result, "request 2 was a call of tickets.close before") {
		t.Error(result)
	}
	if n := len(h.Events(schemas.Activity, "call.requested")); n != 2 {
		t.Errorf("%d calls were requested, want the script and its one", n)
	}
}

// page answers with how often it was asked, and counts what changes something.
type countingPage struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newCountingPage(t *testing.T) *countingPage {
	p := &countingPage{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of a test's own request
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, r.Method+string(body))
		fmt.Fprint(w, len(p.asked))
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *countingPage) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (h *house) mayFetch(p *countingPage, methods ...string) {
	host := strings.TrimPrefix(p.URL, "http://")
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted,
		Runtime: agent.Runtime{Enabled: true, Egress: []agent.Egress{{Hosts: []string{host}, Private: []string{host}, Methods: methods}}}}})
}

// What a script fetched is answered from the record when it is run again: the page may say something else by now, and a
// POST would have its effect twice.
func TestReplayFetchesNothingTwice(t *testing.T) {
	h, page := start(t, false), newCountingPage(t)
	h.grants()
	h.mayFetch(page, "GET", "POST")
	h.admit("call_js", source(fmt.Sprintf(`const u = %q; const a = await (await fetch(u)).json(); const p = await fetch(u, {method: "POST", body: "x"});
		const b = await p.json(); const c = await tools.tickets.close({i: a + b}); return [a, b, c, p.status, p.headers.get("content-type")]`, page.URL)))
	r := h.nested(1)
	h.hold(r)
	h.admitNested(r)
	h.finish(r, "9")
	f, result := h.outcome("call_js")
	if !strings.Contains(result, `[1,2,9,200,"text/plain; charset=utf-8"]`) || len(f.Taint) != 2 {
		t.Errorf("%s, taint %v", result, f.Taint)
	}
	if got := page.requests(); !slices.Equal(got, []string{"GET", "POSTx"}) {
		t.Errorf("the page was asked %v", got)
	}
}

// Nor when the agent may not fetch there any more, or nowhere at all.
func TestReplayAsksWhetherTheRuleStands(t *testing.T) {
	for name, change := range map[string]func(*house){
		"another rule": func(h *house) { h.mayFetch(newCountingPage(h.t)) }, "no rule": func(h *house) { h.allow() },
	} {
		t.Run(name, func(t *testing.T) { testReplayAsksWhetherTheRuleStands(t, change) })
	}
}

func testReplayAsksWhetherTheRuleStands(t *testing.T, change func(*house)) {
	h, page := start(t, false), newCountingPage(t)
	h.grants()
	h.mayFetch(page)
	h.admit("call_js", source(fmt.Sprintf(`let a; try { a = await (await fetch(%q)).text() } catch (e) { a = e.code } return [a, await tools.tickets.close({i: 1})]`, page.URL)))
	r := h.nested(1)
	h.hold(r)
	change(h)
	h.admitNested(r)
	h.finish(r, "9")
	if _, result := h.outcome("call_js"); !strings.Contains(result, `["fetch_blocked",9]`) {
		t.Error(result)
	}
}

// The two moments at which a POST can be cut off look alike to the next life: neither sends it again.
func TestReplayOfAFetchThatWasCutOff(t *testing.T) {
	for name, recorded := range map[string]bool{"before its answer was recorded": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			h, page := start(t, false), newCountingPage(t)
			h.mayFetch(page, "POST")
			src := fmt.Sprintf(`try { return await (await fetch(%q, {method: "POST", body: "x"})).text() } catch (e) { return e.code }`, page.URL+"/")
			h.admit("call_first", source(src))
			first, _ := servicekit.Await[script.Fetched](h.Kit, 1, nil) // as such a fetch is recorded
			h.admitAfter(run1, "call_js", source(src), func() {
				h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Event: script.Fetching{Call: "call_js", Run: run1, Seq: 1, Method: "POST", Digest: first.Digest}})
				if recorded {
					h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Event: script.Fetched{Call: "call_js", Run: run1, Seq: 1, Method: "POST", Digest: first.Digest, Status: 200,
						Body: script.Hops{Hops: []script.Hop{}, Answer: &script.Answer{URL: page.URL + "/", Body: []byte("done")}}}})
				}
			})
			want := `"value":"unknown_outcome"`
			if recorded {
				want = `"value":"done"`
			}
			if _, result := h.outcome("call_js"); !strings.Contains(result, want) {
				t.Errorf("%s, want %s", result, want)
			}
			if got := page.requests(); len(got) != 1 {
				t.Errorf("the page was asked %v", got)
			}
		})
	}
}

// What a script is given to work on is in its call: it finds it again when it is run again.
func TestReplayHasTheInput(t *testing.T) {
	h := start(t, false)
	h.grants()
	args, err := json.Marshal(map[string]any{"source": `const v = await tools.tickets.find({q: input.name}); return [input, v]`, "input": map[string]string{"name": "Ada"}})
	if err != nil {
		t.Fatal(err)
	}
	h.admit("call_js", string(args))
	r := h.nested(1)
	h.hold(r)
	h.admitNested(r)
	h.finish(r, "9")
	if _, result := h.outcome("call_js"); !strings.Contains(result, `"value":[{"name":"Ada"},9]`) {
		t.Error(result)
	}
}
