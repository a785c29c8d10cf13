package mcp

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// request is one call of a client.
type request struct {
	tool  string // connection.tool
	args  json.RawMessage
	input json.RawMessage // to what was asked for in the result before
	state string
	meta  mcp.Meta
	of    mcp.Request
	task  taskMode

	patient bool // it is a task that is waited for: nobody gives it up, and it is answered with its outcome alone
}

// standing is a call that was requested.
type standing struct {
	call id.Call
	run  id.Run
	seq  uint64 // of the request
	tool string
}

// poll is how often an outcome is looked for when no hint comes: a held call, for one, sends none.
const poll = 200 * time.Millisecond

// call makes a call and gives the members of its result. The request is durable before anything happens, and so is the outcome
// before it is answered.
func (e *Endpoint) call(ctx context.Context, c *conversation, q request) (map[string]json.RawMessage, error) {
	leave, err := e.sessions.enter(c.who, e.Limits, time.Now())
	if err != nil {
		return nil, err
	}
	defer leave()
	args, err := permit.CanonicalArgs(q.args)
	if err != nil {
		return nil, err
	}
	if q.input, err = permit.CanonicalInput(q.input); err != nil {
		return nil, err
	}
	body := call.Args{Args: args, Input: q.input}
	key := keyOf(q.tool, body)
	if at, under, err := e.resumed(ctx, c, q, key); err != nil {
		return nil, err
	} else if under != "" {
		// The same call again, while a person decides or after: it is that one, and is made once.
		return e.wait(ctx, c, q, at, under)
	}
	at := standing{call: id.New[id.Call](), run: c.run(time.Now()), tool: q.tool}
	about := client(q.of)
	draft := eventlog.Draft{
		Tenant: c.who.Tenant, Key: string(at.run), Run: at.run, Actor: string(c.who.Agent),
		ID: id.Derive[id.Event](string(c.who.Tenant), string(at.call), "requested"),
		Event: call.Requested{
			Call: at.call, Run: at.run, Agent: c.who.Agent, Tool: q.tool, ArgsDigest: permit.ArgsDigest(body), Effect: string(at.call),
			NotAfter: time.Now().Add(e.Limits.CallLife).UTC(), Taint: e.tainted(c), Hint: e.ear.Subject(at.call), Client: &about,
			Body: body,
		},
	}
	// Whoever answers may be quicker than this: the ear is open before the request is.
	wake, deaf := e.ear.Wait(at.call)
	defer deaf()
	words, quiet := e.news.of(at.call)
	defer quiet()
	if at.seq, err = e.Log.Append(ctx, draft); err != nil {
		return nil, err // audit_unavailable, or pending: the client may ask again, and the ledger knows whether it was made
	}
	return e.follow(ctx, c, q, at, key, wake, words)
}

// wait follows a call that was requested before.
func (e *Endpoint) wait(ctx context.Context, c *conversation, q request, at standing, key string) (map[string]json.RawMessage, error) {
	wake, deaf := e.ear.Wait(at.call)
	defer deaf()
	words, quiet := e.news.of(at.call)
	defer quiet()
	return e.follow(ctx, c, q, at, key, wake, words)
}

// follow tells the client what a call says, and answers with its outcome, or with what it waits for.
func (e *Endpoint) follow(ctx context.Context, c *conversation, q request, at standing, key string, wake <-chan bus.Hint, words <-chan *said) (map[string]json.RawMessage, error) {
	session, _ := q.of.GetSession().(*mcp.ServerSession)
	t := &teller{ctx: ctx, session: session, token: q.meta["progressToken"]}
	if q.patient {
		t.related = relatedTo(at)
	}
	defer t.wait()
	var stop context.CancelFunc
	t.open, stop = context.WithCancel(ctx) // the answer waits for nobody's answer to a question
	defer stop()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	if q.patient {
		if err := e.remind(ctx, c, at, t); err != nil {
			return nil, err
		}
	}
	var pending *approving
	began := time.Now()
	for {
		last, stored := 0, uint64(0)
		select {
		case word := <-words:
			if q.task != noTask && word.answer != nil { // the client is asked by the task
				return e.created(ctx, c, at)
			}
			t.tell(word)
			continue
		case hint := <-wake:
			last, stored = hint.Said, hint.Seq
		case <-ticker.C:
		case <-ctx.Done():
			if !q.patient {
				e.giveUp(c, at)
			}
			return nil, ctx.Err()
		}
		state, err := calls.Hinted(ctx, e.Log, c.who.Tenant, at.run, at.call, at.seq, stored)
		if err != nil {
			return nil, err
		}
		switch {
		case q.task == wanted && state.Settled():
			return e.created(ctx, c, at)
		case state.Outcome != nil:
			t.drain(words, last)
			pending.over(ctx)
			return e.outcome(c, at, state)
		case state.Held != nil && !state.Settled():
			if pending == nil {
				pending = e.approving(c, q, at, key, session, state.Held)
			}
			if answer, err := pending.step(ctx, t); answer != nil || err != nil {
				return answer, err
			}
		case q.task == offered && time.Since(began) >= e.Limits.TaskAfter:
			return e.created(ctx, c, at)
		}
	}
}

// giveUp tells whoever makes the call that nobody waits for it any more. What it answers is recorded all the same.
func (e *Endpoint) giveUp(c *conversation, at standing) {
	_ = e.Conn.NC.Publish(e.down(c, at), nil) // it saves work, no more
}

// outcome is what the client is given for a call that ended: its result, or an error that says which of the other ends it is. The
// same call again is another one from then on, and not before: one whose result cannot be given out yet is not made twice.
func (e *Endpoint) outcome(c *conversation, at standing, state *calls.State) (map[string]json.RawMessage, error) {
	if o, ok := state.Outcome.(call.Finished); ok {
		if why := e.inherit(c, o.Taint); why != nil {
			return nil, &ended{why, at, "", nil}
		}
	}
	c.settled(at.call)
	switch o := state.Outcome.(type) {
	case call.Finished:
		return e.result(c, at, o), nil
	case call.Refused:
		return nil, &ended{problem.New(problem.Code(o.Code), "%s", o.Reason), at, o.Grant, nil}
	case call.Failed:
		return nil, &ended{problem.New(problem.Code(o.Code), "%s", o.Message), at, "", o.Body.Error}
	case call.Cancelled:
		return nil, &ended{problem.New(problem.Cancelled, "%s", o.Reason), at, "", nil}
	case call.Unknown:
		return nil, &ended{problem.New(problem.Unknown, "%s", o.Message), at, "", nil}
	}
	return nil, problem.New(problem.Internal, "the call ended in a way that this version does not know")
}

// result is what a tool answered. An MCP server's is what it was; any other's is its JSON.
func (e *Endpoint) result(c *conversation, at standing, o call.Finished) map[string]json.RawMessage {
	out := members{}
	con, err := id.Named[id.Connection](connectionOf(at.tool))
	def, ok := e.State.Connection(c.who.Tenant, con)
	if err == nil && ok && def.Type == connection.MCP && json.Unmarshal(o.Body.Result, &out) == nil {
		if c.session == "" && out["resultType"] == nil {
			out["resultType"] = json.RawMessage(`"complete"`)
		}
		if o.ToolError {
			out["isError"] = json.RawMessage("true")
		}
		return out
	}
	return plain(o.Body.Result, o.ToolError, c.session == "")
}

// plain wraps a result that no MCP server made.
func plain(result json.RawMessage, failed, modern bool) members {
	text := string(result)
	var s string
	if json.Unmarshal(result, &s) == nil {
		text = s
	}
	out := members{}
	content := []map[string]string{{"type": "text", "text": text}}
	var object map[string]json.RawMessage
	if json.Unmarshal(result, &object) == nil && object != nil {
		out["structuredContent"] = result
		// What a browser shows is a picture for whoever can see one, and a long word for nobody.
		var png string
		if json.Unmarshal(object["png_base64"], &png) == nil && png != "" {
			delete(object, "png_base64")
			rest, _ := json.Marshal(object) // it was JSON
			out["structuredContent"] = rest
			content = []map[string]string{{"type": "image", "mimeType": "image/png", "data": png}, {"type": "text", "text": string(rest)}}
		}
	}
	out["content"], _ = json.Marshal(content) // of plain text
	if failed {
		out["isError"] = json.RawMessage("true")
	}
	if modern {
		out["resultType"] = json.RawMessage(`"complete"`)
	}
	return out
}

// teller tells a client what its call says. Questions are asked beside, since an answer takes as long as a person does.
type teller struct {
	ctx     context.Context
	open    context.Context // of questions
	session *mcp.ServerSession
	token   any
	related mcp.Meta // of everything that is said of a task; nil: it is none
	seen    int
	asked   map[int]bool // questions that were put, by their number
	asking  sync.WaitGroup
}

func (t *teller) wait() { t.asking.Wait() }

// drain tells what came before the outcome and is on its way still.
func (t *teller) drain(words <-chan *said, last int) {
	late := time.NewTimer(poll)
	defer late.Stop()
	for t.seen < last {
		select {
		case word := <-words:
			t.tell(word)
		case <-late.C:
			return
		}
	}
	for {
		select {
		case word := <-words:
			t.tell(word)
		default:
			return
		}
	}
}
