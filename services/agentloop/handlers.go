package agentloop

import (
	"context"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
)

const actor = "service:" + string(schemas.Agentloop)

// onRun hears the loop's own events. Each is the custody of the run until what it leads to is stored, which is heard
// in turn: a crash anywhere makes the last one come again.
func (s *Service) onRun(ctx context.Context, h bus.Heard) error {
	runID, err := id.Parse[id.Run](h.At.Key)
	if err != nil {
		return nil // no run of ours
	}
	switch ev := h.Event.(type) {
	case run.ModelRequested:
		return s.think(ctx, h, ev)
	case run.Completed, run.Failed, run.Cancelled:
		return nil
	}
	return s.advance(ctx, h, runID)
}

// onCall hears the outcomes of calls, and goes on when the last open one of a step is there.
func (s *Service) onCall(ctx context.Context, h bus.Heard) error {
	runID, err := id.Parse[id.Run](h.At.Key)
	if err != nil {
		return nil // a conversation of an external client
	}
	switch h.Event.(type) {
	case call.Finished, call.Failed, call.Refused, call.Cancelled, call.Unknown:
		return s.advance(ctx, h, runID)
	}
	return nil
}

// advance does the one next thing of a run.
func (s *Service) advance(ctx context.Context, h bus.Heard, runID id.Run) error {
	return s.runs.use(ctx, h.At.Tenant, runID, func(state *loop.State) error {
		err := s.do(ctx, h, runID, state, loop.Next(state, s.now()))
		if problem.CodeOf(err) == problem.Conflict {
			return nil // another instance did it, or something else; what it stored is heard in turn
		}
		return err
	})
}

func (s *Service) do(ctx context.Context, h bus.Heard, runID id.Run, state *loop.State, next loop.Action) error {
	say := func(ev schemas.Event) error { return s.say(ctx, h, runID, state.RunSeq, ev) }
	switch a := next.(type) {
	case loop.AskModel:
		digest, err := s.requestDigest(ctx, h.At.Tenant, runID, state)
		if err != nil {
			return err
		}
		return say(run.ModelRequested{Run: runID, Step: a.Step, Attempt: a.Attempt, Digest: digest, NotBefore: a.NotBefore})
	case loop.AskTools:
		return s.askTools(ctx, h, runID, state, a.Uses)
	case loop.Complete:
		s.metrics.ended.WithLabelValues("completed").Inc()
		return say(run.Completed{Run: runID, Steps: len(state.Steps), Calls: state.CallCount(), Tokens: state.Tokens(), Body: run.Result{Text: a.Text}})
	case loop.Fail:
		s.metrics.ended.WithLabelValues("failed").Inc()
		return say(run.Failed{Run: runID, Code: string(a.Code), Message: a.Message})
	case loop.Cancel:
		s.metrics.ended.WithLabelValues("cancelled").Inc()
		return say(run.Cancelled{Run: runID, Reason: a.Reason})
	}
	return nil
}

func (s *Service) say(ctx context.Context, h bus.Heard, runID id.Run, after uint64, ev schemas.Event) error {
	_, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Event: ev, Tenant: h.At.Tenant, Key: string(runID), Run: runID, Actor: actor, Causation: h.Envelope.ID,
		Correlation: h.Envelope.Correlation,
	}, after)
	return err
}

// askTools requests calls under ids that follow from the run, so that after a crash between two of them the ones that
// are stored are found and only the others are said.
func (s *Service) askTools(ctx context.Context, h bus.Heard, runID id.Run, state *loop.State, uses []run.ToolUse) error {
	for _, use := range uses {
		args, err := permit.CanonicalArgs(use.Args)
		if err != nil {
			args = use.Args // the broker refuses them, and the model is told why
		}
		_, err = s.deps.Log.Append(ctx, eventlog.Draft{
			Tenant: h.At.Tenant, Key: string(runID), Run: runID, Actor: string(state.Created.Agent.Agent),
			Causation: h.Envelope.ID, Correlation: h.Envelope.Correlation,
			ID: id.Derive[id.Event](string(h.At.Tenant), string(use.Call), "requested"),
			Event: call.Requested{
				Call: use.Call, Run: runID, Agent: state.Created.Agent.Agent, Tool: use.Tool, ArgsDigest: permit.Digest(args),
				Effect: string(use.Call), NotAfter: s.now().Add(s.cfg.CallLife).UTC(), Taint: state.Taint, Body: call.Args{Args: args},
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
