package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
)

// Tasks of MCP 2025-11-25, where they are experimental and the client says what is one. They are the same tasks: only the words are
// others. tasks/list is not offered, nor is notifications/tasks/status said; both are optional.

// sessionTasks is the first version of the protocol with tasks in sessions.
const sessionTasks = "2025-11-25"

// relatedTask is the member of _meta that says which task something is about.
const relatedTask = "io.modelcontextprotocol/related-task"

// taskHeader is ours, from the edge to what answers: the SDK does not read a call's task parameter, and hands headers on.
const taskHeader = "Execwarden-Task"

// markTask notes whether a message of a session is a call that its client wants as a task.
func markTask(r *http.Request, body []byte) {
	r.Header.Del(taskHeader)
	if !bytes.Contains(body, []byte(`"task"`)) {
		return
	}
	var m struct {
		Method string `json:"method"`
		Params struct {
			Task json.RawMessage `json:"task"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) == nil && m.Method == "tools/call" && len(m.Params.Task) > 0 && m.Params.Task[0] == '{' {
		r.Header.Set(taskHeader, "1")
	}
}

func wantsTask(r mcp.Request) bool {
	extra := r.GetExtra()
	return extra != nil && extra.Header.Get(taskHeader) != ""
}

func (c *conversation) hasTasks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks
}

// withTasks declares tasks where the session's version has them.
func (c *conversation) withTasks(r mcp.Result) mcp.Result {
	begun, ok := r.(*mcp.InitializeResult)
	if !ok || begun.ProtocolVersion < sessionTasks {
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks = true
	return &rawInitialize{*begun}
}

// rawInitialize is what begins a session, with a capability that the SDK does not know.
type rawInitialize struct{ mcp.InitializeResult }

// MarshalJSON implements json.Marshaler.
func (r *rawInitialize) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(&r.InitializeResult)
	if err != nil {
		return nil, err
	}
	var all, caps members
	if err := errors.Join(json.Unmarshal(raw, &all), json.Unmarshal(all["capabilities"], &caps)); err != nil {
		return nil, err
	}
	caps["tasks"] = json.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	if all["capabilities"], err = json.Marshal(caps); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// wrapped is the answer to a call that is a task, with words for the model meanwhile.
func wrapped(task members, words string) members {
	out := members{}
	out["task"], _ = json.Marshal(task) // of values that are JSON
	if words != "" {
		out["_meta"], _ = json.Marshal(map[string]string{"io.modelcontextprotocol/model-immediate-response": words + ". Nothing was done yet."})
	}
	return out
}

func relatedTo(at standing) mcp.Meta {
	return mcp.Meta{relatedTask: map[string]any{"taskId": ticket(at)}}
}

// aboutTaskOfSession answers a request about a task.
func (e *Endpoint) aboutTaskOfSession(ctx context.Context, c *conversation, method string, r mcp.Request, p *taskParams) (mcp.Result, error) {
	if !c.hasTasks() {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the version of this session has no " + method}
	}
	count := e.sessions.poll
	if method == "tasks/result" {
		count = e.sessions.await
	}
	leave, err := count(c.who, e.Limits, time.Now())
	if err != nil {
		return nil, err
	}
	defer leave()
	at, _, err := e.find(ctx, c, p.Task)
	if err != nil {
		return nil, err
	}
	k, err := e.look(ctx, c, at)
	if err != nil {
		return nil, err
	}
	switch method {
	case "tasks/result":
		return e.awaited(ctx, c, r, p, k)
	case "tasks/cancel":
		if k.state.Outcome != nil {
			return nil, problem.New(problem.Invalid, "the task has ended already")
		}
		if err := e.cancelTask(ctx, c, at); err != nil {
			return nil, err
		}
		if k, err = e.look(ctx, c, at); err != nil {
			return nil, err
		}
	}
	status, words := e.status(c, r, k)
	return &rawTask{raw: e.shown(c, k, status, words)}, nil
}

// status is how a task stands, in the words of its era: there a tool that failed is a task that did.
func (e *Endpoint) status(c *conversation, r mcp.Request, k *task) (status, words string) {
	switch o := k.state.Outcome.(type) {
	case nil:
		if len(e.questions(c, r, k)) > 0 {
			return asking, e.heldWords(c, k)
		}
		return working, e.heldWords(c, k)
	case call.Finished:
		if o.ToolError {
			return failed, ""
		}
		return completed, ""
	}
	_, err := e.outcome(c, k.standing, k.state)
	d := problem.DetailOf(err)
	if d.Code == problem.Cancelled {
		return cancelled, d.Message
	}
	return failed, string(d.Code) + ": " + d.Message
}

// awaited waits for a task's end, and answers what its call would have been answered. Meanwhile the client hears what that says, and
// is asked what it asks. Whoever stops waiting gives nothing up.
func (e *Endpoint) awaited(ctx context.Context, c *conversation, r mcp.Request, p *taskParams, k *task) (mcp.Result, error) {
	var raw members
	var err error
	if k.state.Outcome != nil {
		raw, err = e.outcome(c, k.standing, k.state)
	} else {
		raw, err = e.wait(ctx, c, request{tool: k.tool, meta: p.Meta, of: r, patient: true}, k.standing, keyOf(k.tool, k.state.Requested.Body))
	}
	if err != nil {
		return nil, err
	}
	meta := members{}
	if raw["_meta"] != nil {
		_ = json.Unmarshal(raw["_meta"], &meta) // what is no object gives way
	}
	meta[relatedTask], _ = json.Marshal(map[string]string{"taskId": ticket(k.standing)})
	if raw["_meta"], err = json.Marshal(meta); err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the result cannot be written")
	}
	return &rawTask{raw: raw}, nil
}

// remind puts to the client what the task's server asked before, and nobody answered.
func (e *Endpoint) remind(ctx context.Context, c *conversation, at standing, t *teller) error {
	k, err := e.look(ctx, c, at)
	if err != nil {
		return err
	}
	for n, q := range k.asked {
		t.tell(e.reminded(c, at, n, q))
	}
	return nil
}

// reminded is a question of before, whose answer goes to whoever waits for it.
func (e *Endpoint) reminded(c *conversation, at standing, n int, q call.Asked) *said {
	return &said{News: call.News{Method: q.Method, Params: q.Body.Params, Ask: n}, answer: func(raw []byte) {
		var answer executor.Relayed
		if json.Unmarshal(raw, &answer) != nil {
			return // teller wrote it
		}
		if raw, err := json.Marshal(executor.Answer{Ask: n, Relayed: answer}); err == nil {
			_ = e.Conn.NC.Publish(e.down(c, at), raw) // the question stays open if this is lost
		}
	}}
}
