package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// A task is a call: what a client polls is folded from what the stream says of that, and is nowhere else. So any instance
// answers, also one that was started since, and a task's end is the call's.

// tasksExtension is the extension of MCP 2026-07-28 by which a server answers a call with a task.
const tasksExtension = "io.modelcontextprotocol/tasks"

// ticket names a call to its agent, so that whichever instance is given it finds the call on the stream.
func ticket(at standing) string {
	return string(at.call) + "." + string(at.run) + "." + strconv.FormatUint(at.seq, 10)
}

// find finds the call of a ticket. Another agent's, and one of a connection that is not served here, is not there. Problems:
// not_found, unavailable.
func (e *Endpoint) find(ctx context.Context, c *conversation, text string) (at standing, r call.Requested, err error) {
	none := problem.New(problem.NotFound, "the agent has no task of that id here")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return at, r, none
	}
	named, err := id.Parse[id.Call](parts[0])
	if err != nil {
		return at, r, none
	}
	talk, err := id.Parse[id.Conversation](parts[1])
	if err != nil {
		return at, r, none
	}
	seq, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil || seq == 0 {
		return at, r, none
	}
	stored, err := e.Log.ReadAt(ctx, schemas.Activity, seq)
	if problem.CodeOf(err) == problem.Unavailable {
		return at, r, err
	}
	if err != nil || stored.At.Tenant != c.who.Tenant || stored.At.Key != string(talk) {
		return at, r, none
	}
	r, err = eventlog.Decode[call.Requested](stored)
	if err != nil || r.Call != named || r.Agent != c.who.Agent || !c.served(connectionOf(r.Tool)) {
		return at, call.Requested{}, none
	}
	return standing{call: named, run: talk.Run(), seq: seq, tool: r.Tool}, r, nil
}

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
	var words string
	if k.waits() {
		words = e.heldWords(c, k)
	}
	out := e.shown(c, k, working, words)
	if c.session != "" {
		return wrapped(out, words), nil
	}
	out["resultType"] = json.RawMessage(`"task"`)
	return out, nil
}

func (e *Endpoint) heldWords(c *conversation, k *task) string {
	return fmt.Sprintf("%s waits for a person's approval (%s): %s", k.tool, k.state.Held.Reason, e.approvalLink(c, k.standing, k.state.Held))
}

// detailed is a task with what its state brings: its result or error, or what is asked.
func (e *Endpoint) detailed(ctx context.Context, c *conversation, r mcp.Request, k *task) (members, error) {
	var out members
	switch {
	case k.state.Outcome != nil:
		c.settled(k.call)
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
		default:
			why := e.fault(ctx, "tasks/get", err)
			out = e.shown(c, k, failed, why.Error())
			if out["error"], err = json.Marshal(why); err != nil {
				return nil, problem.Wrap(err, problem.Internal, "the error cannot be written")
			}
		}
	default:
		requests := e.questions(c, r, k)
		var words string
		if k.waits() {
			words = e.heldWords(c, k)
		}
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

// taskParams are those of every request about a task.
type taskParams struct {
	mcp.ParamsBase
	Task           string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

type rawTask struct {
	mcp.ResultBase
	raw members
}

// MarshalJSON implements json.Marshaler.
func (r *rawTask) MarshalJSON() ([]byte, error) { return written(r.raw, r.Meta) }

// modernTasks are the methods of the extension.
var modernTasks = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// offerTasks has the SDK take requests about tasks, by the methods of the conversation's era. They are answered before it would.
func offerTasks(s *mcp.Server, c *conversation) {
	methods := modernTasks
	if c.session != "" {
		methods = []string{"tasks/get", "tasks/result", "tasks/cancel"}
	}
	for _, method := range methods {
		err := mcp.AddReceivingCustomMethod(s, method, func(context.Context, *mcp.ServerSession, *taskParams) (*rawTask, error) { return nil, errPlaceholder })
		if err != nil {
			panic(err) // a method of the SDK's own has the name: no version that this was built with
		}
	}
}

// taskMode is whether a call may be answered with a task.
type taskMode int

const (
	noTask  taskMode = iota
	offered          // the client takes one, and we say when (MCP 2026-07-28)
	wanted           // the client says that it is one (MCP 2025-11-25)
)

func taskModeOf(c *conversation, r mcp.Request) taskMode {
	switch {
	case c.session == "" && declaresTasks(r):
		return offered
	case c.session != "" && c.hasTasks() && wantsTask(r):
		return wanted
	}
	return noTask
}

// declaresTasks says whether the client of a request takes a task for an answer.
func declaresTasks(r mcp.Request) bool {
	caps, _ := metaOf(r)[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok
}

// aboutTask answers a request about a task.
func (e *Endpoint) aboutTask(ctx context.Context, c *conversation, method string, r mcp.Request, p *taskParams) (mcp.Result, error) {
	if p == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "taskId is missing"}
	}
	if c.session != "" {
		return e.aboutTaskOfSession(ctx, c, method, r, p)
	}
	if !declaresTasks(r) {
		return nil, errUndeclared
	}
	leave, err := e.sessions.poll(c.who, e.Limits.AtOnce)
	if err != nil {
		return nil, err
	}
	defer leave()
	at, _, err := e.find(ctx, c, p.Task)
	if err != nil {
		return nil, err
	}
	out := members{"resultType": json.RawMessage(`"complete"`)}
	switch method {
	case "tasks/get":
		var k *task
		if k, err = e.look(ctx, c, at); err == nil {
			out, err = e.detailed(ctx, c, r, k)
		}
	case "tasks/update":
		err = e.answerTask(ctx, c, r, at, p.InputResponses)
	case "tasks/cancel":
		err = e.cancelTask(ctx, c, at)
	}
	if err != nil {
		return nil, err
	}
	return &rawTask{raw: out}, nil
}

// maxShown is how many calls of a conversation are remembered whose approval the client was shown.
const maxShown = 256

// show remembers that the client showed a person where to decide on a call. Another instance, or this one after a restart, shows it
// once more.
func (c *conversation) show(k id.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shown) >= maxShown {
		c.shown = c.shown[1:]
	}
	c.shown = append(c.shown, k)
}

func (c *conversation) showed(k id.Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.shown, k)
}
