package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// task is a call as its client may poll it.
type task struct {
	standing
	state   *calls.State
	began   time.Time
	changed time.Time
	asked   map[int]call.Asked // by its server, and not answered yet
}

// look folds a task.
func (e *Endpoint) look(ctx context.Context, c *conversation, at standing) (*task, error) {
	k := &task{standing: at, asked: map[int]call.Asked{}}
	set := calls.Set{}
	for s, err := range e.Log.ReadApart(ctx, schemas.Activity, calls.Filter(c.who.Tenant, at.run), at.seq) {
		if err != nil {
			return nil, err
		}
		ev, err := s.Envelope.Decode()
		if err != nil || callOf(ev) != at.call {
			continue
		}
		if s.Envelope.BodyBlob != "" {
			whole, err := e.Log.Restored(ctx, s.Envelope)
			if err != nil {
				return nil, err
			}
			if ev, err = whole.Decode(); err != nil {
				continue
			}
		}
		k.changed = s.Envelope.Time
		switch ev := ev.(type) {
		case call.Asked:
			if ev.Refused == "" {
				k.asked[ev.Ask] = ev
			}
		case call.Answered:
			delete(k.asked, ev.Ask)
		default:
			set.Apply(s.Seq, ev)
		}
		if k.state = set[at.call]; k.began.IsZero() {
			k.began = s.Envelope.Time
		}
		if k.state != nil && k.state.Outcome != nil {
			break // the first counts
		}
	}
	if k.state == nil || k.state.Requested == nil {
		return nil, problem.New(problem.NotFound, "what was recorded of the task is not kept any more")
	}
	return k, nil
}

func callOf(ev schemas.Event) id.Call {
	switch ev := ev.(type) {
	case call.Asked:
		return ev.Call
	case call.Answered:
		return ev.Call
	}
	return calls.Of(ev)
}

// waits says whether a person has to decide the call.
func (k *task) waits() bool { return k.state.Held != nil && !k.state.Settled() }

// How often a client should look, in milliseconds: at what runs, and at what a person has to decide.
const (
	lookAtRunning = 500
	lookAtHeld    = 2000
)

// Words of the state of a task.
const (
	working   = "working"
	asking    = "input_required"
	completed = "completed"
	failed    = "failed"
	cancelled = "cancelled"
)

// shown is a task as the wire has it, without what its state brings.
func (e *Endpoint) shown(c *conversation, k *task, status, words string) members {
	ttl, every := "ttlMs", "pollIntervalMs"
	if c.session != "" {
		ttl, every = "ttl", "pollInterval"
	}
	poll := lookAtRunning
	if k.waits() {
		poll = lookAtHeld
	}
	out := members{ttl: number(schemas.Activity.Retention().Milliseconds()), every: number(int64(poll))}
	put := func(name, value string) { out[name], _ = json.Marshal(value) } // of plain text
	put("taskId", ticket(k.standing))
	put("status", status)
	put("createdAt", k.began.UTC().Format(time.RFC3339Nano))
	put("lastUpdatedAt", k.changed.UTC().Format(time.RFC3339Nano))
	if words != "" {
		put("statusMessage", words)
	}
	return out
}

func number(n int64) json.RawMessage { return json.RawMessage(strconv.FormatInt(n, 10)) }

// created is the answer to a call that is a task now. Its request is durable, so every instance finds it.
func (e *Endpoint) created(ctx context.Context, c *conversation, at standing) (members, error) {
	k, err := e.look(ctx, c, at)
	if err != nil {
		return nil, err
	}
	words := e.heldWords(c, k)
	out := e.shown(c, k, working, words)
	if c.session != "" {
		return wrapped(out, words), nil
	}
	out["resultType"] = json.RawMessage(`"task"`)
	return out, nil
}

// heldWords say what a task waits for; empty when that is no person.
func (e *Endpoint) heldWords(c *conversation, k *task) string {
	if !k.waits() {
		return ""
	}
	return waitsFor(k.tool, k.state.Held.Reason, e.approvalLink(c, k.standing, k.state.Held))
}

// detailed is a task with what its state brings: its result or error, or what is asked.
func (e *Endpoint) detailed(ctx context.Context, c *conversation, r mcp.Request, k *task) (members, error) {
	var out members
	switch {
	case k.state.Outcome != nil:
		_, finished := k.state.Outcome.(call.Finished)
		result, err := e.outcome(c, k.standing, k.state)
		var end *ended
		switch {
		case err == nil:
			out = e.shown(c, k, completed, "")
			if out["result"], err = json.Marshal(result); err != nil {
				return nil, problem.Wrap(err, problem.Internal, "the result cannot be written")
			}
		case errors.As(err, &end) && end.why.Code == problem.Cancelled:
			out = e.shown(c, k, cancelled, end.why.Message)
		case finished:
			return nil, err // it cannot be given out yet: who took it for failed might make the call again
		default:
			why := e.fault(ctx, "tasks/get", err)
			out = e.shown(c, k, failed, why.Error())
			if out["error"], err = json.Marshal(why); err != nil {
				return nil, problem.Wrap(err, problem.Internal, "the error cannot be written")
			}
		}
	default:
		requests, words := e.questions(c, r, k), e.heldWords(c, k)
		if len(requests) == 0 {
			out = e.shown(c, k, working, words)
			break
		}
		out = e.shown(c, k, asking, words)
		out["inputRequests"], _ = json.Marshal(requests) // of values that are JSON
	}
	out["resultType"] = json.RawMessage(`"complete"`)
	return out, nil
}

// approvalKey and askPrefix are the keys of what a task asks its client: to show a person where to decide, and what its server
// asked.
const (
	approvalKey = "approval"
	askPrefix   = "ask-"
)

type asks struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// questions are what a task asks its client now, by key. One key is one question for as long as the task lives.
func (e *Endpoint) questions(c *conversation, r mcp.Request, k *task) map[string]asks {
	out := map[string]asks{}
	if k.waits() && showsLinks(client(r)) && !c.showed(k.call) {
		params, _ := json.Marshal(linkParams(e.heldWords(c, k), e.approvalLink(c, k.standing, k.state.Held), k.call)) // of plain text
		out[approvalKey] = asks{"elicitation/create", params}
	}
	for n, q := range k.asked {
		out[askPrefix+strconv.Itoa(n)] = asks{q.Method, q.Body.Params}
	}
	return out
}
