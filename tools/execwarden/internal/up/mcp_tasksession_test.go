package up

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/gateway"
)

type (
	aboutTask struct {
		mcp.ParamsBase
		Task string `json:"taskId"`
	}
	// ofTask is any answer about a task: the task, or what its call was answered.
	ofTask struct {
		mcp.ResultBase
		Task    string `json:"taskId"`
		Status  string `json:"status"`
		Message string `json:"statusMessage"`
		TTL     *int64 `json:"ttl"`
		Type    string `json:"resultType"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
)

// taskSession is a session of MCP 2025-11-25 whose client makes tasks.
type taskSession struct {
	*mcp.ClientSession
	w     *mcpWorld
	as    string
	asked atomic.Int64
	said  chan string // what it was asked
}

func (w *mcpWorld) taskSession(t *testing.T, as string) *taskSession {
	t.Helper()
	s := &taskSession{w: w, as: as, said: make(chan string, 16)}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}, Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			related, _ := r.Params.Meta["io.modelcontextprotocol/related-task"].(map[string]any)
			s.said <- fmt.Sprint(r.Params.Mode, " ", r.Params.URL, " ", related["taskId"])
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		}})
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		must(t, mcp.AddSendingCustomMethod[*aboutTask, *ofTask](c, method))
	}
	var err error
	s.ClientSession, err = c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: w.endpoints.API + "/mcp", HTTPClient: &http.Client{Transport: &bearer{token: w.tokens[as]}}},
		&mcp.ClientSessionOptions{ProtocolVersion: sessions})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() }) // it may have been ended for it
	return s
}

func (s *taskSession) about(t *testing.T, method, task string) (*ofTask, error) {
	return mcp.CallCustomMethod[*aboutTask, *ofTask](t.Context(), s.ClientSession, method, &aboutTask{Task: task})
}

// call makes a call as a task.
func (s *taskSession) call(t *testing.T, tool, args string) (task string) {
	t.Helper()
	_, said, _ := s.w.post(t, s.as, sessions, fmt.Sprintf(`{"jsonrpc":"2.0","id":"t%d","method":"tools/call","params":{"name":%q,"arguments":%s,"task":{"ttl":60000}}}`, s.asked.Add(1), tool, args),
		func(r *http.Request) { r.Header.Set("Mcp-Session-Id", s.ID()) })
	var m struct {
		Result struct {
			Task map[string]json.RawMessage
		}
	}
	for line := range strings.Lines(said) {
		_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &m) // what is no message changes nothing
	}
	for _, member := range []string{"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"} {
		if m.Result.Task[member] == nil {
			t.Fatalf("the task has no %s: %s", member, said)
		}
	}
	if string(m.Result.Task["status"]) != `"working"` || strings.Contains(said, "ttlMs") || strings.Contains(said, "resultType") {
		t.Fatalf("%s", said)
	}
	must(t, json.Unmarshal(m.Result.Task["taskId"], &task))
	return task
}

func (s *taskSession) becomes(t *testing.T, task, status string) (o *ofTask) {
	t.Helper()
	buskit.Eventually(t, "the task is "+status, func() bool {
		var err error
		o, err = s.about(t, "tasks/get", task)
		must(t, err)
		return o.Status == status
	})
	return o
}

// In sessions of 2025-11-25 the client says what is a task, and waits for its result where it likes.
func TestMCPTasksOfSessions(t *testing.T) {
	w := newMCPWorld(t, func(c *gateway.Config) { c.MCPHeldWait = 10 * time.Millisecond }) // a result is waited for longer
	p := provide(t, eras[sessions])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.agent("b")
	w.grant("a", "write", "s.write", func(g *grant.Created) { g.Approval = grant.Always; g.Tainted = true })
	for i, tool := range []string{"give", "fail", "hang", "elicit"} {
		w.grant("a", fmt.Sprint("g", i), "s."+tool)
	}
	waiting := func(t *testing.T) ask.Approval { return heldCase{mcpCase{w: w}}.open(t) }
	s := w.taskSession(t, "a")
	t.Run("declared", func(t *testing.T) {
		for version, want := range map[string]bool{"2025-11-25": true, "2025-06-18": false} {
			_, said, header := w.post(t, "b", "", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, version))
			if strings.Contains(said, `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`) != want || !strings.Contains(said, `"listChanged":true`) {
				t.Errorf("%s: %s", version, said)
			}
			_, said, _ = w.post(t, "b", version, `{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"x"}}`, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id")) })
			if strings.Contains(said, "-32602") != want || strings.Contains(said, "-32601") == want {
				t.Errorf("%s: %s", version, said)
			}
		}
		_, said, _ := w.post(t, "a", sessions, `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", s.ID()) })
		if strings.Count(said, `"execution":{"taskSupport":"optional"}`) != 5 {
			t.Errorf("%s", said)
		}
	})
	t.Run("approved", func(t *testing.T) {
		before := p.effects.Load()
		task := s.call(t, "s__write", `{"n":1}`)
		if again := s.call(t, "s__write", `{"n":1}`); again != task {
			t.Errorf("the same call is %s and %s", task, again)
		}
		a := waiting(t)
		if o, err := s.about(t, "tasks/get", task); err != nil || o.Status != "input_required" || !strings.Contains(o.Message, string(a.Approval)) || o.TTL == nil || o.Type != "" {
			t.Errorf("%+v, %v", o, err)
		}
		type got struct {
			*ofTask
			err error
		}
		result := make(chan got, 1)
		go func() {
			o, err := s.about(t, "tasks/result", task)
			result <- got{o, err}
		}()
		if said := <-s.said; said != "url "+w.endpoints.API+"/approvals/"+string(a.Approval)+" "+task {
			t.Errorf("it was asked %q", said)
		}
		// Whoever stops waiting gives nothing up.
		ctx, stop := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = mcp.CallCustomMethod[*aboutTask, *ofTask](ctx, s.ClientSession, "tasks/result", &aboutTask{Task: task}) // it is stopped
		}()
		<-s.said
		stop()
		<-gone
		if n := p.effects.Load(); n != before {
			t.Fatalf("%d effects before it was approved", n-before)
		}
		w.approve(a)
		o := <-result
		must(t, o.err)
		if want := fmt.Sprintf(`effect %d {"n":1}`, before+1); o.Content[0].Text != want || o.Meta["io.modelcontextprotocol/related-task"] == nil {
			t.Errorf("%+v", o.ofTask)
		}
		again, err := s.about(t, "tasks/result", task)
		if err != nil || again.Content[0].Text != o.Content[0].Text || p.effects.Load() != before+1 {
			t.Errorf("%+v, %v", again, err)
		}
		s.becomes(t, task, "completed")
		if _, err := s.about(t, "tasks/cancel", task); err == nil {
			t.Error("a task that ended was cancelled")
		} else if code, _ := wire(t, err); code != -32602 {
			t.Errorf("%v", err)
		}
	})
	t.Run("a tool that fails", func(t *testing.T) {
		task := s.call(t, "s__fail", `{}`)
		s.becomes(t, task, "failed")
		if o, err := s.about(t, "tasks/result", task); err != nil || !o.IsError {
			t.Errorf("%+v, %v", o, err)
		}
	})
	t.Run("denied", func(t *testing.T) {
		task := s.call(t, "s__write", `{"n":2}`)
		w.refuse(t, waiting(t))
		if o := s.becomes(t, task, "failed"); !strings.HasPrefix(o.Message, "denied: ") {
			t.Errorf("%+v", o)
		}
		_, err := s.about(t, "tasks/result", task)
		if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
			t.Errorf("%v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		task := s.call(t, "s__write", `{"n":3}`)
		waiting(t)
		if o, err := s.about(t, "tasks/cancel", task); err != nil || o.Status != "cancelled" || o.Task != task {
			t.Errorf("%+v, %v", o, err)
		}
		task = s.call(t, "s__hang", `{}`)
		<-p.hanging
		if o, err := s.about(t, "tasks/cancel", task); err != nil || o.Status != "cancelled" {
			t.Errorf("%+v, %v", o, err)
		}
		<-p.ended
	})
	t.Run("its server asks", func(t *testing.T) {
		task := s.call(t, "s__elicit", `{}`)
		s.becomes(t, task, "input_required") // nobody was asked yet
		o, err := s.about(t, "tasks/result", task)
		if err != nil || !strings.Contains(o.Content[0].Text, "Ada") {
			t.Fatalf("%+v, %v", o, err)
		}
		if said := <-s.said; !strings.HasSuffix(said, " "+task) || len(s.said) != 0 {
			t.Errorf("it was asked %q, and %d times more", said, len(s.said))
		}
	})
	t.Run("of others", func(t *testing.T) {
		task := s.call(t, "s__give", `{}`)
		other := w.taskSession(t, "b")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			_, err := other.about(t, method, task)
			if code, _ := wire(t, err); code != -32602 {
				t.Errorf("%s: %v", method, err)
			}
		}
		for _, method := range []string{"tasks/update", "tasks/list"} { // of the next version; not offered
			status, said, _ := w.post(t, "a", sessions, fmt.Sprintf(`{"jsonrpc":"2.0","id":"u","method":%q,"params":{"taskId":%q}}`, method, task), func(r *http.Request) { r.Header.Set("Mcp-Session-Id", s.ID()) })
			if status != http.StatusBadRequest || !strings.Contains(said, "unsupported") {
				t.Errorf("%s: %d %s", method, status, said)
			}
		}
		// Another session of the agent's has it.
		if o, err := w.taskSession(t, "a").about(t, "tasks/result", task); err != nil || len(o.Content) == 0 {
			t.Errorf("%+v, %v", o, err)
		}
	})
	t.Run("a header of ours", func(t *testing.T) {
		_, said, _ := w.post(t, "a", sessions, `{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"s__give","arguments":{"task":{}}}}`, func(r *http.Request) {
			r.Header.Set("Mcp-Session-Id", s.ID())
			r.Header.Set("Execwarden-Task", "1")
		})
		if strings.Contains(said, "taskId") || !strings.Contains(said, "structuredContent") {
			t.Errorf("%s", said)
		}
	})
	w.mustVerify()
}
