package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// host is what one script can reach: its agent's tools, as calls, and the hosts of its agent's egress rule.
type host struct {
	s     *Service
	w     *executor.Work
	way   *egress.Client // nil: no fetch
	rules []agent.Egress
	start eventlog.Draft // script.started

	live    func(call.News)
	order   *order
	record  record
	shelf   shelf
	sending sync.WaitGroup // fetches under way that may change something

	mu    sync.Mutex
	made  map[int]int // fetches by each rule
	pages int         // bytes of pages
	taint []string
	notes []string // what the model has to know of the script's calls, beyond what the script makes of them
}

func newHost(ctx context.Context, s *Service, w *executor.Work, start eventlog.Draft, rules []agent.Egress) (*host, error) {
	h := &host{s: s, w: w, start: start, made: map[int]int{}, live: s.gate.News(w, time.Now)}
	var err error
	if h.order, err = openOrder(ctx, s, w); err != nil {
		return h, err
	}
	return h, h.openWay(rules)
}

func (h *host) close() {
	if h.way != nil {
		h.way.CloseIdleConnections()
	}
}

func (h *host) taints() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.taint)
}

func (h *host) noted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.notes)
}

// noteEdit tells that a call was made with other arguments than the script's. The script itself goes on with the answer.
func (h *host) noteEdit(state *calls.State) {
	if state.Admitted == nil || state.Admitted.Edited == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.notes) < maxNotes {
		h.notes = append(h.notes, fmt.Sprintf("a person edited the arguments of %s; it was called with %.*s", state.Requested.Tool, maxNoted, state.Admitted.Body.Args))
	}
}

// Bounds of the notes beside a script's result.
const (
	maxNotes = 20
	maxNoted = 2 << 10 // bytes of one call's arguments
)

func (h *host) addTaint(origins ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range origins {
		if !slices.Contains(h.taint, o) {
			h.taint = append(h.taint, o)
		}
	}
}

// CallTool implements sandbox.Host. The call's id follows from the script's and the place of the call in it: a script
// that is run again asks for the same call, and finds its outcome. Outcomes are given in the order of the record.
func (h *host) CallTool(ctx context.Context, c sandbox.Call) (json.RawMessage, error) {
	args, err := permit.CanonicalArgs(c.Args)
	if err != nil {
		return nil, err
	}
	callID := h.order.nested(c.Seq)
	wake, forget := h.s.hints.Wait(callID)
	defer forget()
	state, err := h.order.ask(c.Seq, c.Tool, permit.Digest(args))
	if err != nil {
		return nil, err
	}
	if state.Requested == nil {
		// A crash right after this leaves a call that is decided and made without us, and found by the next life.
		if err := h.request(ctx, callID, c.Tool, args); err != nil {
			return nil, sandbox.Abort(err)
		}
	}
	err = h.order.turn(ctx, answerID(callID), wake, func() error {
		if state := h.order.state(callID); state.Held != nil && !state.Settled() {
			// A person may take days. The worker ends; the script is run again when they have decided. A fetch that
			// changes something is let come to its end first: cut off, it would be one of unknown outcome.
			h.sending.Wait()
			return sandbox.Abort(waits(callID))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	state = h.order.state(callID)
	if err := h.order.stands(state); err != nil {
		return nil, err
	}
	h.noteEdit(&state)
	return h.outcome(&state)
}

// pollOutcome is how often an outcome is looked for when no hint comes: a held call, for one, sends none.
const pollOutcome = 200 * time.Millisecond

// Started implements sandbox.Host. That a worker has the script is on record before the script does anything. A crash
// right after this is an attempt that did nothing; a script that had no worker leaves no word of one.
func (h *host) Started(ctx context.Context) error {
	if _, err := h.s.deps.Log.Append(ctx, h.start); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the start of the script is not on record")
	}
	return nil
}

// Refused implements sandbox.Host.
func (h *host) Refused(seq int) error { return h.order.refused(seq) }

// Answered implements sandbox.Host.
func (h *host) Answered(seq int) { h.order.gave(seq) }

func (h *host) request(ctx context.Context, c id.Call, tool string, args json.RawMessage) error {
	r := h.w.Requested
	_, err := h.s.deps.Log.Append(ctx, eventlog.Draft{
		Tenant: h.w.Tenant, Key: string(r.Run), Run: r.Run, Actor: string(r.Agent), Correlation: h.w.Correlation,
		ID: id.Derive[id.Event](string(h.w.Tenant), string(c), "requested"),
		Event: call.Requested{
			Call: c, Run: r.Run, Agent: r.Agent, Tool: tool, ArgsDigest: permit.Digest(args), Effect: string(c), Parent: r.Call,
			NotAfter: time.Now().Add(h.s.cfg.CallLife).UTC(), Taint: h.tainted(), Hint: h.s.hints.Subject(c), Body: call.Args{Args: args},
		},
	})
	return err
}

// outcome is what the script is given for a call that ended.
func (h *host) outcome(state *calls.State) (json.RawMessage, error) {
	switch o := state.Outcome.(type) {
	case call.Finished:
		h.addTaint(o.Taint...)
		value := plain(o.Body.Result)
		if o.ToolError {
			return nil, problem.New(problem.Upstream, "the tool says: %.2000s", value)
		}
		return value, nil
	case call.Refused:
		return nil, problem.New(problem.Code(o.Code), "%s", o.Reason)
	case call.Failed:
		return nil, problem.New(problem.Code(o.Code), "%s", o.Message)
	case call.Cancelled:
		return nil, problem.New(problem.Cancelled, "%s", o.Reason)
	case call.Unknown:
		return nil, problem.New(problem.Unknown, "%s", o.Message)
	}
	return nil, problem.New(problem.Internal, "the call ended in a way that this version does not know")
}

// plain takes an MCP result's own value out of its wrapping: the structured content, or one text, parsed when it is
// JSON. What is wrapped otherwise, or not at all, stays as it is.
func plain(raw json.RawMessage) json.RawMessage {
	var r struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return raw
	}
	if len(r.Structured) > 0 {
		return r.Structured
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" {
		return raw
	}
	if text := []byte(r.Content[0].Text); json.Valid(text) {
		return text
	}
	text, err := json.Marshal(r.Content[0].Text)
	if err != nil {
		return raw
	}
	return text
}

// Log implements sandbox.Host. Lines are part of the result; whoever follows the run sees them as they come. A script
// that is run again says the same lines again, under the same numbers.
func (h *host) Log(level, line string) { h.live(call.News{Level: level, Message: line}) }
