package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

const actor = "service:" + string(schemas.Runtime)

// onAdmitted runs an admitted script. Heard again after a crash, or after a call of it was held, it runs the script
// anew over the record.
func (s *Service) onAdmitted(ctx context.Context, h bus.Heard) error {
	w, err := s.gate.Take(ctx, h)
	if err != nil || w == nil {
		return err
	}
	work, leave, err := s.gate.Enter(ctx, w)
	if why := executor.StoppedBy(err); why != "" {
		return s.gate.Settle(ctx, w, s.cancelled(w, why))
	}
	if err != nil {
		return err
	}
	defer leave()
	// After Enter, so that a script whose grant is revoked ends although a call of it waits.
	if err := s.heldCall(ctx, w); err != nil {
		return err // a person still has to decide; a worker would only wait for them
	}
	var args struct {
		Source string          `json:"source"`
		Input  json.RawMessage `json:"input"`
	}
	dec := json.NewDecoder(strings.NewReader(string(w.Requested.Body.Args)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&args); err != nil || args.Source == "" {
		return s.gate.Refuse(ctx, w, problem.New(problem.Invalid, "run_javascript takes source, which is text, and maybe input, which is an object"))
	}
	if len(args.Input) > maxInput {
		return s.gate.Refuse(ctx, w, problem.New(problem.TooLarge, "the input is %d bytes; the limit is %d", len(args.Input), maxInput))
	}
	held, err := s.gate.Claim(ctx, w)
	if err != nil {
		return err
	}
	start := eventlog.Draft{Tenant: w.Tenant, Key: string(w.Admitted.Run), Run: w.Admitted.Run, Actor: actor, Causation: h.Envelope.ID, Correlation: w.Correlation,
		Event: script.Started{Call: w.Admitted.Call, Run: w.Admitted.Run, Attempt: held.Epoch(), Seed: seed(w.Admitted.Call), NowMS: h.StoredAt.UnixMilli(), Tier: string(s.pool.Tier())}}
	var outcome schemas.Event
	held.Keep(work, func(work context.Context) {
		outcome, err = s.run(work, w, start, sandbox.Script{Source: args.Source, Input: args.Input, Now: h.StoredAt})
	})
	if err != nil {
		return err
	}
	return s.gate.Settle(ctx, w, outcome)
}

// maxInput is the largest input of a script, in bytes, as of a call of another tool.
const maxInput = 256 << 10

// heldCall says busy while a call of the script waits for a person.
func (s *Service) heldCall(ctx context.Context, w *executor.Work) error {
	set := calls.Set{}
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, calls.Filter(w.Tenant, w.Admitted.Run), w.Admitted.Requested) {
		if err != nil {
			return err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			set.Apply(e.Seq, ev)
		}
	}
	for c, state := range set {
		if state.Requested != nil && state.Requested.Parent == w.Admitted.Call && state.Held != nil && !state.Settled() {
			return waits(c)
		}
	}
	return nil
}

func waits(c id.Call) error { return problem.New(problem.Busy, "the script's call %s is held", c) }

// run runs the script once. An error is no outcome: the admission is to be heard again.
func (s *Service) run(ctx context.Context, w *executor.Work, start eventlog.Draft, job sandbox.Script) (schemas.Event, error) {
	visible, err := rpc.Ask[ask.VisibleTools](ctx, s.deps.Conn, schemas.Toolbroker, "tools_visible",
		rpc.Caller{Tenant: w.Tenant, Actor: actor}, ask.Visibility{Agent: w.Requested.Agent, Run: w.Admitted.Run, As: ask.Names})
	if err != nil {
		return nil, err
	}
	agent, _ := s.agents.Get(w.Tenant, string(w.Requested.Agent)) // one that is gone has no egress rule
	host, err := newHost(ctx, s, w, start, agent.Runtime.Egress)
	defer host.close()
	if executor.Later(err) {
		return nil, err
	}
	if err != nil { // a rule that cannot be read: another try would not read it either
		d := problem.DetailOf(err)
		return call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(d.Code), Message: d.Message}, nil
	}
	tools, fetched := host.order.reached()
	job.Seed, job.Run, job.Fetch = seed(w.Admitted.Call), string(w.Admitted.Run), fetched || len(agent.Runtime.Egress) > 0
	for _, t := range visible.Tools {
		tools = append(tools, t.Name)
	}
	slices.Sort(tools)
	for _, t := range slices.Compact(tools) {
		if !strings.HasPrefix(t, "runtime.") { // a script starts no scripts
			job.Tools = append(job.Tools, t)
		}
	}
	result, err := s.pool.Run(ctx, string(w.Tenant), job, host)
	var failure *sandbox.ScriptError
	switch {
	case executor.Stopped(ctx) != "":
		s.metrics.leftOff(err, true)
		return s.cancelled(w, executor.Stopped(ctx)), nil
	case errors.As(err, &failure):
		s.metrics.ended(failure.Code, result.Stats)
		return s.finished(w, host, true, errorResult{Error: failing{failure.Code, failure.Message, failure.Line, failure.Col}, Logs: result.Logs, Notes: host.noted()})
	case errors.Is(err, sandbox.ErrFull) && !host.order.ran && ctx.Err() == nil:
		// It has not begun, and whoever asked may ask again. One that a worker had before goes on waiting, for what it did
		// must not be done again; what is asked anew is turned away meanwhile.
		s.metrics.leftOff(err, false)
		d := problem.DetailOf(err)
		return call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(d.Code), Message: d.Message}, nil
	case err != nil && executor.Later(err) || ctx.Err() != nil:
		s.metrics.leftOff(err, false)
		return nil, problem.Wrap(err, problem.Unavailable, "the script was cut off")
	case err != nil:
		d := problem.DetailOf(err)
		s.metrics.ended(string(d.Code), result.Stats)
		return call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(d.Code), Message: d.Message}, nil
	}
	s.metrics.ended("ok", result.Stats)
	return s.finished(w, host, false, valueResult{Value: result.Value, Logs: result.Logs, Warnings: result.Warnings, Notes: host.noted(), Isolation: string(result.Tier)})
}

type valueResult struct {
	Value     json.RawMessage `json:"value"`
	Logs      []sandbox.Line  `json:"logs,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Notes     []string        `json:"notes,omitempty"`
	Isolation string          `json:"isolation"`
}

type errorResult struct {
	Error failing        `json:"error"`
	Logs  []sandbox.Line `json:"logs,omitempty"`
	Notes []string       `json:"notes,omitempty"`
}

type failing struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Col     int    `json:"col,omitempty"`
}

func (s *Service) finished(w *executor.Work, host *host, toolError bool, result any) (schemas.Event, error) {
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the script's result cannot be written")
	}
	return call.Finished{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, ToolError: toolError,
		Taint: host.taints(), Body: call.Result{Result: raw}}, nil
}

func (s *Service) cancelled(w *executor.Work, why string) schemas.Event {
	return call.Cancelled{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Reason: why}
}

// seed makes a script's random source follow from its call, so that it is the same however often the script is run.
func seed(c id.Call) uint64 {
	sum := sha256.Sum256([]byte(c))
	return binary.BigEndian.Uint64(sum[:8])
}
