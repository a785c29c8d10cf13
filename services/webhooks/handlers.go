package webhooks

import (
	"context"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/hook"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/webhooks/internal/rules"
)

const actor = "service:" + string(schemas.Webhooks)

// onReceived starts the runs that the triggers want. A crash between a run and the record of it makes the delivery
// come again; the runs have the same ids then, and exist.
func (s *Service) onReceived(ctx context.Context, h bus.Heard) error {
	if err := s.view.Current(); err != nil {
		return err
	}
	envelope, err := s.deps.Log.Restored(ctx, h.Envelope)
	if err != nil {
		return err
	}
	got, err := eventlog.Decode[hook.Received](eventlog.Stored{Seq: h.Seq, Envelope: envelope})
	if err != nil {
		return bus.Undecodable(err)
	}
	facts, err := rules.Read(got.Event, got.Body.Payload)
	if err != nil {
		return s.say(ctx, h, hook.Ignored{Delivery: got.Delivery, Reason: "the payload is not JSON of the expected shape"})
	}
	var runs []id.Run
	reason := "the endpoint has no triggers"
	for _, t := range s.triggers.All(h.At.Tenant) {
		if t.Hook != got.Hook {
			continue
		}
		ok, why := rules.Matches(t, facts)
		if !ok {
			reason = why
			continue
		}
		prompt, err := rules.Prompt(t, facts)
		if err != nil {
			reason = err.Error()
			continue
		}
		started, err := rpc.Ask[ask.Started](ctx, s.deps.Conn, schemas.Agentloop, "run_start",
			rpc.Caller{Tenant: h.At.Tenant, Actor: string(t.Trigger)},
			ask.StartRun{Run: rules.RunID(h.At.Tenant, got.Delivery, t.Trigger), Agent: t.Agent, Prompt: prompt, Trigger: t.Trigger,
				Delivery: got.Delivery, Taint: []string{string(got.Hook)}})
		switch problem.CodeOf(err) {
		case "":
			runs = append(runs, started.Run)
		case problem.NotFound, problem.Invalid, problem.Conflict:
			reason = problem.DetailOf(err).Message // the trigger asks for what cannot be; asking again does not help
		default:
			return err
		}
	}
	if len(runs) == 0 {
		return s.say(ctx, h, hook.Ignored{Delivery: got.Delivery, Reason: reason})
	}
	return s.say(ctx, h, hook.Routed{Delivery: got.Delivery, Runs: runs})
}

func (s *Service) say(ctx context.Context, h bus.Heard, ev schemas.Event) error {
	_, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Event: ev, Tenant: h.At.Tenant, Key: h.At.Key, Actor: actor, Causation: h.Envelope.ID, Correlation: h.Envelope.Correlation,
	}, h.Seq)
	if problem.CodeOf(err) == problem.Conflict {
		return nil // said at an earlier hearing
	}
	return err
}
