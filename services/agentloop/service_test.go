package agentloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

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
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is an agent loop on a real bus with a model that says what the test tells it to, one answer after the other.
type house struct {
	*servicekit.Kit
	t       *testing.T
	model   *httptest.Server
	mu      sync.Mutex
	answers []http.HandlerFunc
	asked   []string // bodies
	gateway func(method string, who rpc.Caller, q any) (json.RawMessage, error)
}

func start(t *testing.T, answers ...http.HandlerFunc) *house {
	t.Helper()
	t.Parallel()
	h := &house{Kit: servicekit.Start(t), t: t, answers: answers}
	h.model = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		n := len(h.asked)
		h.asked = append(h.asked, string(body))
		answer := says("one answer too many")
		if n < len(h.answers) {
			answer = h.answers[n]
		}
		h.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(h.model.Close)
	servicekit.Answer(h.Kit, schemas.Toolbroker, "tools_visible", func(_ context.Context, who rpc.Caller, q ask.Visibility) (ask.VisibleTools, error) {
		if who.Service != schemas.Agentloop || who.Tenant != servicekit.Tenant || q.Agent != "agt_a" {
			return ask.VisibleTools{}, problem.New(problem.Denied, "%+v asks for %+v", who, q)
		}
		return ask.VisibleTools{Tools: []ask.VisibleTool{{Name: "tickets.find_owner", Description: "d", Schema: json.RawMessage(`{"type":"object"}`)}}}, nil
	})
	s, err := agentloop.New(agentloop.Config{ModelTimeout: 20 * time.Second, CallLife: time.Minute}, h.Deps(schemas.Agentloop))
	if err != nil {
		t.Fatal(err)
	}
	h.Run(s)
	conn := h.Conn(t, string(schemas.Gateway))
	h.gateway = func(method string, who rpc.Caller, q any) (json.RawMessage, error) {
		return rpc.Ask[json.RawMessage](t.Context(), conn, schemas.Agentloop, method, who, q)
	}
	host := strings.TrimPrefix(h.model.URL, "http://")
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_ext", Event: agent.Defined{Agent: "agt_ext", Hosting: agent.External}})
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Be brief."},
		Model: agent.Model{Protocol: "openai", URL: h.model.URL, Name: "m", Private: []string{host}}}})
	return h
}

// run asks for a run until the service knows its agent.
func (h *house) run(r id.Run) {
	h.t.Helper()
	buskit.Eventually(h.t, "the run is started", func() bool {
		_, err := h.gateway("run_start", servicekit.Owner(), ask.StartRun{Run: r, Agent: "agt_a", Prompt: "do it <now>", Taint: []string{"hook_a"}})
		return err == nil
	})
}

func (h *house) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.asked...)
}

func chunk(w io.Writer, delta, finish string) {
	fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
}

func stream(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

// says is a model that answers with a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		chunk(w, fmt.Sprintf(`{"content":%q}`, text), "null")
		chunk(w, "{}", `"stop"`)
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}`+"\n\ndata: [DONE]\n\n")
	}
}

// wants is a model that asks for tools, named in pairs of name and arguments.
func wants(calls ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		for i := 0; i < len(calls); i += 2 {
			chunk(w, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"use_%d","type":"function","function":{"name":%q,"arguments":%q}}]}`, i/2, i/2, calls[i], calls[i+1]), "null")
		}
		chunk(w, "{}", `"tool_calls"`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

func status(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, `{"error":{"message":"no","type":"x"}}`)
	}
}

// cut is a stream that ends in the middle.
func cut(w http.ResponseWriter, _ *http.Request) {
	stream(w)
	chunk(w, `{"content":"half an ans"}`, "null")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func (h *house) kinds() (out []string) {
	for _, e := range h.Events(schemas.Activity) {
		out = append(out, e.At.Kind())
	}
	return out
}

func TestWithTools(t *testing.T) {
	h := start(t, wants("tickets__find_owner", `{"q":"<a> & b"}`, "no_such", `{"a":1}`), says("done"))
	h.run("run_1")
	first, at := servicekit.Await[call.Requested](h.Kit, 1, func(r call.Requested) bool { return r.Tool == "tickets.find_owner" })
	second, _ := servicekit.Await[call.Requested](h.Kit, 1, func(r call.Requested) bool { return r.Tool == "no_such" })
	// What is stored is what was digested, whatever characters it has: else the broker refuses it.
	if permit.Digest(first.Body.Args) != first.ArgsDigest || first.Run != "run_1" || first.Agent != "agt_a" || len(first.Taint) != 1 || first.Effect != string(first.Call) || first.NotAfter.Before(time.Now()) {
		t.Errorf("%+v", first)
	}
	if at.Envelope.Actor != "agt_a" {
		t.Errorf("asked by %s", at.Envelope.Actor)
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Refused{Call: second.Call, Run: "run_1", Code: "not_found", Reason: "no such tool"}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Route: call.Upstream, Event: call.Finished{Call: first.Call, Run: "run_1", Taint: []string{"con_x"}, Body: call.Result{Result: json.RawMessage(`{"owner":"ann"}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Route: call.Upstream, Event: call.Failed{Call: first.Call, Run: "run_1", Code: "internal", Message: "too late"}})
	done, _ := servicekit.Await[run.Completed](h.Kit, 1, nil)
	if done.Body.Text != "done" || done.Steps != 2 || done.Calls != 2 || done.Tokens != 15 {
		t.Errorf("%+v", done)
	}
	var sent struct {
		Messages []struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
		}
	}
	if err := json.Unmarshal([]byte(h.requests()[1]), &sent); err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, m := range sent.Messages {
		if m.Role == "tool" {
			results[m.ToolCallID] += m.Content
		}
	}
	if len(results) != 2 || results["use_0"] != `{"owner":"ann"}` || !strings.Contains(results["use_1"], "no such tool") {
		t.Errorf("the model is told %v", results)
	}
}

// A limit is waited out for as long as the provider says, a broken stream is asked for again, and nothing of what was
// broken is kept.
func TestRetries(t *testing.T) {
	h := start(t, status(429, "1"), http.HandlerFunc(cut), says("whole"))
	h.run("run_1")
	done, _ := servicekit.Await[run.Completed](h.Kit, 1, nil)
	if done.Body.Text != "whole" || done.Steps != 1 {
		t.Errorf("%+v", done)
	}
	first, at := servicekit.Await[run.ModelFailed](h.Kit, 1, nil)
	second, _ := servicekit.Await[run.ModelFailed](h.Kit, 2, nil)
	if first.Code != string(problem.Busy) || !first.Retryable || first.RetryAfter != 1000 || !second.Retryable || second.Attempt != 2 {
		t.Errorf("%+v %+v", first, second)
	}
	again, _ := servicekit.Await[run.ModelRequested](h.Kit, 2, nil)
	if wait := again.NotBefore.Sub(at.Envelope.Time); wait < time.Second {
		t.Errorf("asked again after %s", wait)
	}
	for _, e := range h.Events(schemas.Activity) {
		if strings.Contains(string(e.Raw), "half an ans") {
			t.Errorf("%s holds a part of an answer", e.At)
		}
	}
	if n := len(h.requests()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestFinalError(t *testing.T) {
	h := start(t, status(401, ""))
	h.run("run_1")
	ended, _ := servicekit.Await[run.Failed](h.Kit, 1, nil)
	if ended.Code == "" || !strings.HasPrefix(ended.Message, "the model: ") || len(h.requests()) != 1 {
		t.Errorf("%+v after %d requests", ended, len(h.requests()))
	}
}

func TestStartedOnce(t *testing.T) {
	h := start(t, says("done"))
	h.run("run_1")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			raw, err := h.gateway("run_start", servicekit.Owner(), ask.StartRun{Run: "run_1", Agent: "agt_a", Prompt: "do it <now>", Taint: []string{"hook_a"}})
			if err != nil || !strings.Contains(string(raw), "run_1") {
				t.Errorf("%s, %v", raw, err)
			}
		})
	}
	wait.Wait()
	servicekit.Await[run.Completed](h.Kit, 1, nil)
	if got := fmt.Sprint(h.kinds()); got != "[run.created run.model_requested run.model_completed run.completed]" {
		t.Error(got)
	}
	if len(h.requests()) != 1 || len(h.Events(schemas.Control, "session.opened")) != 1 {
		t.Errorf("%d requests, %d sessions", len(h.requests()), len(h.Events(schemas.Control, "session.opened")))
	}
	if _, err := h.gateway("run_cancel", servicekit.Owner(), ask.CancelRun{Run: "run_1"}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a run that ended is cancelled: %v", err)
	}
}

// A script that is asked for again under its run's id is the same run, however its input is written; another input is not.
func TestScriptIsStartedOnce(t *testing.T) {
	h := start(t)
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_js", Event: agent.Defined{Agent: "agt_js", Hosting: agent.Hosted, Runtime: agent.Runtime{Enabled: true}}})
	var at []uint64
	for _, input := range []string{`{"a": "<x>", "b": 1}`, `{"a":"\u003cx>","b":1}`, `{"a":"y","b":1}`, ``} {
		q := ask.StartRun{Agent: "agt_js", Run: "run_js", Script: "return input.a", Input: json.RawMessage(input)}
		var started ask.Started
		buskit.Eventually(t, "the agent is known", func() bool {
			raw, err := h.gateway("run_start", servicekit.Owner(), q)
			if problem.CodeOf(err) == problem.Conflict {
				return true
			}
			return err == nil && json.Unmarshal(raw, &started) == nil
		})
		at = append(at, started.Seq)
	}
	if at[0] == 0 || at[1] != at[0] || at[2] != 0 || at[3] != 0 {
		t.Errorf("started at %v, want one run, and conflicts", at)
	}
}

func TestQuestionsThatAreRefused(t *testing.T) {
	h := start(t)
	h.run("run_1")
	for name, c := range map[string]struct {
		q    any
		want problem.Code
	}{
		"no agent":              {ask.StartRun{Prompt: "x"}, problem.Invalid},
		"an unknown agent":      {ask.StartRun{Agent: "agt_none", Prompt: "x"}, problem.NotFound},
		"an external one":       {ask.StartRun{Agent: "agt_ext", Prompt: "x"}, problem.Invalid},
		"no prompt":             {ask.StartRun{Agent: "agt_a"}, problem.Invalid},
		"a long prompt":         {ask.StartRun{Agent: "agt_a", Prompt: strings.Repeat("x", 256<<10+1)}, problem.Invalid},
		"an input of no script": {ask.StartRun{Agent: "agt_a", Prompt: "x", Input: json.RawMessage(`{}`)}, problem.Invalid},
		"an input of no object": {ask.StartRun{Agent: "agt_a", Script: "1", Input: json.RawMessage(`[1]`)}, problem.Invalid},
		"an input twice":        {ask.StartRun{Agent: "agt_a", Script: "1", Input: json.RawMessage(`{"a":1,"a":2}`)}, problem.Invalid},
		"a large input":         {ask.StartRun{Agent: "agt_a", Script: "1", Input: json.RawMessage(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`)}, problem.TooLarge},
		"a run's id":            {ask.StartRun{Agent: "agt_a", Prompt: "x", Run: "run_*"}, problem.Invalid},
	} {
		if _, err := h.gateway("run_start", servicekit.Owner(), c.q); problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	other := rpc.Caller{Tenant: "tnt_b", Actor: "mem_x", Role: "owner"}
	if _, err := h.gateway("run_start", other, ask.StartRun{Agent: "agt_a", Prompt: "x"}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("another tenant's agent: %v", err)
	}
	for _, who := range []rpc.Caller{other, servicekit.Owner()} {
		want := problem.NotFound
		if _, err := h.gateway("run_cancel", who, ask.CancelRun{Run: "run_none"}); problem.CodeOf(err) != want {
			t.Errorf("%v", err)
		}
	}
	if _, err := h.gateway("run_cancel", other, ask.CancelRun{Run: "run_1"}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("another tenant cancels: %v", err)
	}
	for _, role := range []member.Role{member.Approver, member.Auditor, ""} {
		if _, err := h.gateway("model_key_set", servicekit.Caller("mem_x", role), ask.SetModelKey{Agent: "agt_a", Key: "k"}); problem.CodeOf(err) != problem.Denied {
			t.Errorf("role %q sets keys: %v", role, err)
		}
	}
	if _, err := h.gateway("model_key_set", servicekit.Owner(), ask.SetModelKey{Agent: "agt_a", Key: ""}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("an empty key: %v", err)
	}
}

// A run is stopped while its model thinks, and while it waits to ask again: neither is waited for.
func TestCancel(t *testing.T) {
	thinking := make(chan struct{})
	h := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(thinking)
		<-r.Context().Done()
	}, status(429, "600"))
	cancel := func(r id.Run) {
		for range 2 { // asked twice, it is said once
			if _, err := h.gateway("run_cancel", servicekit.Owner(), ask.CancelRun{Run: r, Reason: "wrong one"}); err != nil && problem.CodeOf(err) != problem.Conflict {
				t.Errorf("%s: %v", r, err)
			}
		}
		ended, _ := servicekit.Await[run.Cancelled](h.Kit, 1, func(c run.Cancelled) bool { return c.Run == r })
		if ended.Reason != "wrong one" {
			t.Errorf("%+v", ended)
		}
	}
	h.run("run_1")
	<-thinking
	cancel("run_1")
	h.run("run_2")
	servicekit.Await[run.ModelRequested](h.Kit, 1, func(r run.ModelRequested) bool { return r.Run == "run_2" && r.Attempt == 2 })
	cancel("run_2")
	if n := len(h.Events(schemas.Activity, "run.cancel_requested")); n != 2 {
		t.Errorf("%d cancellations are recorded", n)
	}
	if n := len(h.requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
}

// The key goes to the model, and nowhere else.
func TestModelKeyIsSent(t *testing.T) {
	var authorization string
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		says("done")(w, r)
	})
	buskit.Eventually(t, "the key is kept", func() bool {
		_, err := h.gateway("model_key_set", servicekit.Owner(), ask.SetModelKey{Agent: "agt_a", Key: "sk-canary"})
		return err == nil
	})
	h.run("run_1")
	servicekit.Await[run.Completed](h.Kit, 1, nil)
	if authorization != "Bearer sk-canary" {
		t.Errorf("authorization %q", authorization)
	}
	for _, stream := range []schemas.Stream{schemas.Control, schemas.Activity} {
		for _, e := range h.Events(stream) {
			if strings.Contains(string(e.Raw), "sk-canary") {
				t.Errorf("%s tells the key", e.At)
			}
		}
	}
}
