package up

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/gateway"
)

// taskMeta is what a client says of itself that takes tasks, and shows people links.
const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{},"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// onWire is a task as it is on the wire, or the error in its place.
type onWire struct {
	ResultType    string                                     `json:"resultType"`
	Task          string                                     `json:"taskId"`
	Status        string                                     `json:"status"`
	Message       string                                     `json:"statusMessage"`
	Created       time.Time                                  `json:"createdAt"`
	TTL           int64                                      `json:"ttlMs"`
	Result        *struct{ Content []struct{ Text string } } `json:"result"`
	InputRequests map[string]struct {
		Method string
		Params struct{ Mode, URL string }
	} `json:"inputRequests"`
	Error *struct {
		Code int64
		Data struct{ Code, Call string }
	} `json:"error"`

	status int    // of HTTP
	code   int64  // of the JSON-RPC error; 0: none
	said   string // everything
}

// about sends one request of the era without sessions, by a client that takes tasks.
func (w *mcpWorld) about(t *testing.T, as, method, name, params string) (o onWire) {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,%s}}`, method, taskMeta, params)
	o.status, o.said, _ = w.post(t, as, without, body, func(r *http.Request) {
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Mcp-Name", name)
	})
	var m struct {
		Result json.RawMessage
		Error  *struct{ Code int64 }
	}
	for line := range strings.Lines(o.said) {
		_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &m) // what is no message changes nothing
	}
	if m.Error != nil {
		o.code = m.Error.Code
	}
	if m.Result != nil {
		must(t, json.Unmarshal(m.Result, &o))
	}
	return o
}

func (w *mcpWorld) callTask(t *testing.T, as, tool, args string) onWire {
	t.Helper()
	return w.about(t, as, "tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, args))
}

func (w *mcpWorld) getTask(t *testing.T, as, task string) onWire {
	t.Helper()
	return w.about(t, as, "tasks/get", task, fmt.Sprintf(`"taskId":%q`, task))
}

// becomes waits until a task has a status.
func (w *mcpWorld) becomes(t *testing.T, as, task, status string) (o onWire) {
	t.Helper()
	buskit.Eventually(t, "the task is "+status, func() bool {
		o = w.getTask(t, as, task)
		if o.code != 0 || o.ResultType != "complete" || o.Task != task {
			t.Fatalf("%s", o.said)
		}
		return o.Status == status
	})
	return o
}

// mustBeTask holds an answer against what a new task has to be.
func (o onWire) mustBeTask(t *testing.T) {
	t.Helper()
	if o.ResultType != "task" || o.Task == "" || o.Status != "working" || o.Created.IsZero() || o.TTL <= 0 || o.Result != nil || o.Error != nil || o.InputRequests != nil {
		t.Fatalf("no new task: %s", o.said)
	}
}

// A call that waits for a person, or takes long, is a task to a client that declares the extension; what becomes of it is what
// became of the call, whoever answers.
func TestMCPTasks(t *testing.T) {
	w := newMCPWorld(t, func(c *gateway.Config) { c.MCPTaskAfter = 50 * time.Millisecond })
	p := provide(t, eras[sessions]) // it asks while a call runs
	w.provider("s", p.url, 7)
	w.provider("elsewhere", provide(t, eras[without]).url, 7)
	for _, name := range []string{"a", "b"} {
		w.agent(name)
		w.grant(name, "write-"+name, "s.write", func(g *grant.Created) { g.Approval = grant.Always; g.Tainted = true })
	}
	for i, tool := range []string{"give", "fail", "hang", "elicit"} {
		w.grant("a", fmt.Sprint("g", i), "s."+tool)
	}
	waiting := func(t *testing.T) ask.Approval { return heldCase{mcpCase{w: w}}.open(t) }

	t.Run("quick", func(t *testing.T) {
		if o := w.callTask(t, "a", "s__fail", `{}`); o.ResultType == "task" && o.Task == "" || o.code != 0 {
			t.Errorf("%s", o.said)
		}
	})
	t.Run("approved", func(t *testing.T) {
		before := p.effects.Load()
		made := w.callTask(t, "a", "s__write", `{"n":1}`)
		made.mustBeTask(t)
		// The same call again, while a person decides, is that one.
		if again := w.callTask(t, "a", "s__write", `{"n":1}`); again.Task != made.Task {
			t.Errorf("%s is another than %s", again.Task, made.Task)
		}
		a := waiting(t)
		if !strings.HasPrefix(made.Task, string(a.Call)+".mcp_") || !strings.Contains(made.Message, string(a.Approval)) {
			t.Errorf("%s", made.said)
		}
		o := w.getTask(t, "a", made.Task)
		q := o.InputRequests["approval"]
		if o.Status != "input_required" || len(o.InputRequests) != 1 || q.Method != "elicitation/create" || q.Params.Mode != "url" || !strings.HasSuffix(q.Params.URL, string(a.Approval)) {
			t.Fatalf("%s", o.said)
		}
		// What the client says of it decides nothing; it is not asked again.
		if ack := w.about(t, "a", "tasks/update", made.Task, fmt.Sprintf(`"taskId":%q,"inputResponses":{"approval":{"action":"accept","content":{"approved":true}},"other":{}}`, made.Task)); ack.ResultType != "complete" || ack.Task != "" {
			t.Errorf("%s", ack.said)
		}
		if o := w.getTask(t, "a", made.Task); o.Status != "working" || !strings.Contains(o.Message, "waits for a person") || p.effects.Load() != before {
			t.Errorf("%s", o.said)
		}
		// Another agent's it is not, whatever it may do itself, and nothing it sends changes it.
		for method, params := range map[string]string{"tasks/get": "", "tasks/update": `,"inputResponses":{}`, "tasks/cancel": ""} {
			if o := w.about(t, "b", method, made.Task, fmt.Sprintf(`"taskId":%q%s`, made.Task, params)); o.code != -32602 || strings.Contains(o.said, "write") {
				t.Errorf("%s: %s", method, o.said)
			}
		}
		w.approve(a)
		o = w.becomes(t, "a", made.Task, "completed")
		if want := fmt.Sprintf(`effect %d {"n":1}`, before+1); o.Result == nil || o.Result.Content[0].Text != want || p.effects.Load() != before+1 {
			t.Errorf("%s", o.said)
		}
		// It stays what it is, and to cancel it changes nothing.
		if ack := w.about(t, "a", "tasks/cancel", made.Task, fmt.Sprintf(`"taskId":%q`, made.Task)); ack.ResultType != "complete" {
			t.Errorf("%s", ack.said)
		}
		if again := w.getTask(t, "a", made.Task); again.Status != "completed" || again.Result.Content[0].Text != o.Result.Content[0].Text {
			t.Errorf("%s", again.said)
		}
		// Its outcome was given: the same call now is another.
		next := w.callTask(t, "a", "s__write", `{"n":1}`)
		if next.mustBeTask(t); next.Task == made.Task {
			t.Error("a call that ended is given for a new one")
		}
		w.refuse(t, waiting(t))
	})
	t.Run("denied", func(t *testing.T) {
		made := w.callTask(t, "a", "s__write", `{"n":2}`)
		made.mustBeTask(t)
		w.refuse(t, waiting(t))
		if o := w.becomes(t, "a", made.Task, "failed"); o.Error == nil || o.Error.Code != -32050 || o.Error.Data.Code != "denied" || o.Result != nil {
			t.Errorf("%s", o.said)
		}
	})
	t.Run("cancelled while it waits", func(t *testing.T) {
		before := p.effects.Load()
		made := w.callTask(t, "a", "s__write", `{"n":3}`)
		made.mustBeTask(t)
		a := waiting(t)
		if ack := w.about(t, "a", "tasks/cancel", made.Task, fmt.Sprintf(`"taskId":%q`, made.Task)); ack.ResultType != "complete" || ack.Status != "" {
			t.Fatalf("%s", ack.said)
		}
		if o := w.getTask(t, "a", made.Task); o.Status != "cancelled" || o.Error != nil || o.Result != nil {
			t.Errorf("%s", o.said)
		}
		list, err := w.Approvals(t.Context(), true)
		if err != nil || len(list) != 0 {
			t.Errorf("%+v wait still, %v", list, err)
		}
		if got, err := w.Approval(t.Context(), a.Approval); err != nil || got.State != "expired" || p.effects.Load() != before {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("cancelled while it runs", func(t *testing.T) {
		made := w.callTask(t, "a", "s__hang", `{}`)
		made.mustBeTask(t)
		<-p.hanging
		if ack := w.about(t, "a", "tasks/cancel", made.Task, fmt.Sprintf(`"taskId":%q`, made.Task)); ack.ResultType != "complete" {
			t.Fatalf("%s", ack.said)
		}
		<-p.ended
		if o := w.becomes(t, "a", made.Task, "cancelled"); !strings.Contains(o.Message, "gave the call up") {
			t.Errorf("%s", o.said)
		}
	})
	t.Run("its server asks", func(t *testing.T) {
		made := w.callTask(t, "a", "s__elicit", `{}`)
		made.mustBeTask(t)
		o := w.becomes(t, "a", made.Task, "input_required")
		if q := o.InputRequests["ask-1"]; len(o.InputRequests) != 1 || q.Method != "elicitation/create" || !strings.Contains(o.said, `"requestedSchema"`) {
			t.Fatalf("%s", o.said)
		}
		update := func(answers string) onWire {
			return w.about(t, "a", "tasks/update", made.Task, fmt.Sprintf(`"taskId":%q,"inputResponses":%s`, made.Task, answers))
		}
		if o := update(`{"ask-1":5}`); o.code != -32602 {
			t.Errorf("no object was taken: %s", o.said)
		}
		// Of the second JSON has six bytes for one.
		for _, much := range []string{strings.Repeat("x", 300<<10), strings.Repeat("<", 100<<10)} {
			if o := update(`{"ask-1":{"action":"accept","content":{"name":"` + much + `"}}}`); o.code != -32602 {
				t.Errorf("too much was taken: %.300s", o.said)
			}
		}
		if o := update(`{"ask-2":{},"ask-x":{},"approval":{}}`); o.ResultType != "complete" {
			t.Errorf("%s", o.said)
		}
		if o := update(`{"ask-1":{"action":"accept","content":{"name":"Ada"}}}`); o.ResultType != "complete" {
			t.Errorf("%s", o.said)
		}
		if o := w.getTask(t, "a", made.Task); o.InputRequests != nil {
			t.Errorf("it is asked still: %s", o.said)
		}
		if o := w.becomes(t, "a", made.Task, "completed"); !strings.Contains(o.Result.Content[0].Text, "Ada") {
			t.Errorf("%s", o.said)
		}
		w.recorded(t, "call.answered", func(all []schemas.Event) bool {
			return slices.ContainsFunc(all, func(ev schemas.Event) bool { return strings.HasPrefix(made.Task, string(ev.(call.Answered).Call)) })
		})
	})
	t.Run("hostile", func(t *testing.T) {
		made := w.callTask(t, "a", "s__write", `{"n":4}`)
		made.mustBeTask(t)
		parts := strings.Split(made.Task, ".")
		for _, task := range []string{"", "x", "..", parts[0], parts[0] + "." + parts[1], made.Task + ".1", parts[0] + "." + parts[1] + ".0", parts[0] + "." + parts[1] + ".1", parts[0] + "." + parts[1] + ".-1",
			parts[0] + "." + parts[1] + ".99999999999", parts[0] + "." + parts[1] + ".99999999999999999999", parts[0] + ".mcp_*." + parts[2], parts[0] + ".mcp_x." + parts[2], "call_*." + parts[1] + "." + parts[2],
			"call_x." + parts[1] + "." + parts[2], parts[0] + ".run_x." + parts[2], parts[0] + "." + parts[1] + ".1e3", strings.Repeat("x", 4000), "ew.v1.>", parts[0] + "." + parts[1] + "." + "+" + parts[2]} {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				if o := w.about(t, "a", method, task, fmt.Sprintf(`"taskId":%q,"inputResponses":{}`, task)); o.code != -32602 {
					t.Errorf("%s %.80q: %d %.300s", method, task, o.status, o.said)
				}
			}
		}
		for name, c := range map[string]struct {
			body, header string
			want         int64
		}{
			"another's header":     {fmt.Sprintf(`{%s,"taskId":%q}`, taskMeta, made.Task), "x", -32020},
			"no header":            {fmt.Sprintf(`{%s,"taskId":%q}`, taskMeta, made.Task), "", -32020},
			"not declared":         {fmt.Sprintf(`{%s,"taskId":%q}`, modernMeta, made.Task), made.Task, -32021},
			"a number for an id":   {`{` + taskMeta + `,"taskId":5}`, "5", -32602},
			"answers that are one": {fmt.Sprintf(`{%s,"taskId":%q,"inputResponses":[1]}`, taskMeta, made.Task), made.Task, -32602},
		} {
			status, said, _ := w.post(t, "a", without, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":`+c.body+`}`, func(r *http.Request) {
				r.Header.Set("Mcp-Method", "tasks/get")
				r.Header.Set("Mcp-Name", c.header)
			})
			if status != http.StatusBadRequest || !strings.Contains(said, fmt.Sprintf(`"code":%d`, c.want)) {
				t.Errorf("%s: %d %s", name, status, said)
			}
		}
		if status, said, _ := w.post(t, "a", without, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{%s,"notifications":{"taskIds":[%q]}}}`, modernMeta, made.Task), func(r *http.Request) {
			r.Header.Set("Mcp-Method", "subscriptions/listen")
		}); status != http.StatusBadRequest || !strings.Contains(said, "-32021") {
			t.Errorf("news of a task without tasks: %d %s", status, said)
		}
		for _, method := range []string{"tasks/result", "tasks/list"} { // of the era before
			if o := w.about(t, "a", method, made.Task, fmt.Sprintf(`"taskId":%q`, made.Task)); o.code != -32601 {
				t.Errorf("%s: %s", method, o.said)
			}
		}
		// Where it was not made it is not either: of another connection only that one's tasks are served.
		if status, said, _ := w.post(t, "a", without, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{%s,"taskId":%q}}`, taskMeta, made.Task), func(r *http.Request) {
			r.URL.Path = "/mcp/c/elsewhere"
			r.Header.Set("Mcp-Method", "tasks/get")
			r.Header.Set("Mcp-Name", made.Task)
		}); !strings.Contains(said, "-32602") {
			t.Errorf("%d %s", status, said)
		}
		w.refuse(t, waiting(t))
	})
	t.Run("ExecWarden is started again", func(t *testing.T) {
		before := p.effects.Load()
		kept := w.callTask(t, "a", "s__write", `{"n":5}`)
		kept.mustBeTask(t)
		given := w.callTask(t, "a", "s__write", `{"n":6}`)
		given.mustBeTask(t)
		w.stop()
		w.start()
		for _, task := range []string{kept.Task, given.Task} {
			if o := w.getTask(t, "a", task); o.Status != "input_required" {
				t.Errorf("%s", o.said)
			}
		}
		if ack := w.about(t, "a", "tasks/cancel", given.Task, fmt.Sprintf(`"taskId":%q`, given.Task)); ack.ResultType != "complete" {
			t.Errorf("%s", ack.said)
		}
		w.becomes(t, "a", given.Task, "cancelled")
		w.approve(waiting(t))
		o := w.becomes(t, "a", kept.Task, "completed")
		if want := fmt.Sprintf(`effect %d {"n":5}`, before+1); o.Result.Content[0].Text != want || p.effects.Load() != before+1 {
			t.Errorf("%s, %d effects", o.said, p.effects.Load()-before)
		}
	})
	w.mustVerify()
}

// A task that nobody decided in time says so.
func TestMCPTaskExpires(t *testing.T) {
	w := &mcpWorld{world: newWorldAround(t), tokens: map[string]string{}}
	w.approvals = 3 * time.Second
	w.gateway = func(c *gateway.Config) { c.MCPHeldWait = 0 }
	w.start()
	t.Cleanup(func() { w.stop() })
	p := provide(t, eras[without])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.grant("a", "write", "s.write", func(g *grant.Created) { g.Approval = grant.Always; g.Tainted = true })
	made := w.callTask(t, "a", "s__write", `{}`)
	made.mustBeTask(t)
	if o := w.becomes(t, "a", made.Task, "failed"); o.Error == nil || o.Error.Code != -32050 || o.Error.Data.Code != "expired" || p.effects.Load() != 0 {
		t.Errorf("%s", o.said)
	}
}
