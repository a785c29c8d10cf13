package environments

import (
	"context"
	"fmt"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

const actor = "service:" + string(schemas.Environments)

// onAdmitted has an admitted call done on the machine that is attached. Heard again after a crash, it asks the machine
// again: the order's receipt is there, so nothing is done twice.
func (s *Service) onAdmitted(ctx context.Context, h bus.Heard) error {
	w, err := s.gate.Take(ctx, h)
	if err != nil || w == nil {
		return err
	}
	work, leave, err := s.gate.Enter(ctx, w)
	if why := executor.StoppedBy(err); why != "" {
		return s.stoppedBefore(ctx, w, why)
	}
	if err != nil {
		return err
	}
	defer leave()
	v, attached, err := s.attachedFor(work, w)
	if err != nil {
		return err
	}
	if !attached {
		return s.gate.Refuse(ctx, w, problem.New(problem.Unavailable, "no environment is attached to this run; somebody has to attach one: execwarden env attach"))
	}
	// Before anything is sent to the machine. A crash from here on has another instance take the claim over, and ask the
	// machine for the same order.
	held, err := s.gate.Claim(ctx, w)
	if err != nil {
		return err
	}
	var outcome schemas.Event
	held.Keep(work, func(work context.Context) { outcome, err = s.carryOut(work, w, v, h.StoredAt) })
	if err != nil {
		return err
	}
	return s.gate.Settle(ctx, w, outcome)
}

// stoppedBefore ends a call that lost what it rests on while nobody acted on it. One that was claimed may have begun.
func (s *Service) stoppedBefore(ctx context.Context, w *executor.Work, why string) error {
	claimed, err := s.gate.Claimed(ctx, w)
	if err != nil {
		return err
	}
	if !claimed {
		return s.gate.Settle(ctx, w, s.cancelled(w, why))
	}
	v, attached, err := s.attachedFor(ctx, w)
	if err != nil {
		return err
	}
	if !attached {
		return s.gate.Settle(ctx, w, s.unknown(w, why+", and the machine is not attached any more"))
	}
	held, err := s.gate.Claim(ctx, w)
	if err != nil {
		return err
	}
	var outcome schemas.Event
	held.Keep(ctx, func(ctx context.Context) { outcome = s.callOff(ctx, w, v, why) })
	return s.gate.Settle(ctx, w, outcome)
}

// attachedFor finds the volume that a call works on.
func (s *Service) attachedFor(ctx context.Context, w *executor.Work) (v volume.Defined, attached bool, err error) {
	session, err := standing.SessionOf(ctx, s.deps.Log, w.Tenant, w.Admitted.Run)
	if err != nil {
		return v, false, err
	}
	v, attached = s.registry.Attached(w.Tenant, w.Admitted.Run, session, w.Requested.Agent)
	return v, attached, nil
}

// Times of an order.
const (
	patience  = 2 * time.Second        // that a connector has before it says that an order is under way
	askWithin = patience + time.Second // the answer to it
	pause     = 500 * time.Millisecond // between attempts to reach a machine
)

// carryOut gives the order to the machine and asks until it is done. An error is no outcome: the admission is to be
// heard again.
func (s *Service) carryOut(ctx context.Context, w *executor.Work, v volume.Defined, admittedAt time.Time) (schemas.Event, error) {
	order := connector.Order{
		Attachment: v.Attached.Attachment, Epoch: v.Epoch, Volume: v.Name, Run: w.Admitted.Run, Call: w.Admitted.Call, Agent: w.Requested.Agent,
		Tool: w.Admitted.Tool, Requested: w.Admitted.Requested, Args: w.Requested.Body.Args, Permit: w.Admitted.Permit, AdmittedAt: admittedAt.UTC(), Patience: patience,
	}
	if machine.Writes(w.Admitted.Tool) {
		// Before the machine may print anything. A crash from here on leaves a name for output that may never come.
		if err := s.deps.Log.KeepOutputHome(ctx, w.Tenant, v.Environment, w.Admitted.Call); err != nil {
			return nil, err
		}
	}
	began := s.now()
	sent := false // at least one order may have arrived
	for {
		answer, arrived, err := s.give(ctx, w.Tenant, v.Environment, order)
		sent = sent || arrived
		if why := executor.Stopped(ctx); why != "" {
			return s.callOff(context.WithoutCancel(ctx), w, v, why), nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, problem.Wrap(context.Cause(ctx), problem.Unavailable, "the order was left under way")
		case err == nil && answer.State != connector.UnderWay:
			s.orders.WithLabelValues(string(answer.State)).Observe(s.now().Sub(began).Seconds())
			return s.outcome(w, v, answer), nil
		case err == nil:
			continue // the machine is patient for us
		case s.now().Sub(began) > s.cfg.GiveUpAfter:
			s.orders.WithLabelValues("unreachable").Observe(s.now().Sub(began).Seconds())
			if !sent {
				return call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(problem.Unavailable),
					Message: fmt.Sprintf("the machine of environment %s was not there for %s", id.Name(v.Environment), s.cfg.GiveUpAfter)}, nil
			}
			return s.unknown(w, "the machine went away after the command was given to it"), nil
		case !s.stillAttached(w.Tenant, v):
			return s.unknown(w, "the attachment ended while the machine was away"), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (s *Service) stillAttached(tenant id.Tenant, v volume.Defined) bool {
	now, ok := s.registry.Volumes.Get(tenant, string(v.Volume))
	return ok && now.Attached != nil && now.Attached.Attachment == v.Attached.Attachment
}

// give asks the newest connector of an environment. arrived says that the order may have reached it.
func (s *Service) give(ctx context.Context, tenant id.Tenant, env id.Environment, order connector.Order) (a connector.Answer, arrived bool, err error) {
	return askMachine[connector.Answer](ctx, s, registry.Place{Tenant: tenant, Environment: env}, "order", order, askWithin)
}

// callOff ends a call whose run or grant is no more: what it began on the machine is killed.
func (s *Service) callOff(ctx context.Context, w *executor.Work, v volume.Defined, why string) schemas.Event {
	ctx, cancel := context.WithTimeout(ctx, askWithin+connector.CancelGrace)
	defer cancel()
	at := registry.Place{Tenant: w.Tenant, Environment: v.Environment}
	answer, _, err := askMachine[connector.Answer](ctx, s, at, "cancel", connector.Cancel{Call: w.Admitted.Call, Grace: connector.CancelGrace}, askWithin+connector.CancelGrace)
	switch {
	case err != nil:
		return s.unknown(w, why+"; the machine did not say whether it had begun")
	case answer.State == connector.NotBegun:
		return s.cancelled(w, why)
	}
	return s.unknown(w, why+"; it had begun, and was ended")
}

func (s *Service) outcome(w *executor.Work, v volume.Defined, a connector.Answer) schemas.Event {
	c := w.Admitted
	switch a.State {
	case connector.Done:
		return call.Finished{Call: c.Call, Run: c.Run, Tool: c.Tool, ToolError: a.ToolError,
			Taint: []string{"machine:" + id.Name(v.Environment)}, Body: call.Result{Result: a.Result}}
	case connector.Refused, connector.NotBegun:
		return call.Failed{Call: c.Call, Run: c.Run, Tool: c.Tool, Code: string(problemCode(a.Code)), Message: clip(a.Message)}
	}
	return s.unknown(w, clip(a.Message))
}

// problemCode takes a machine's word for a code only where it is one.
func problemCode(code string) problem.Code {
	if c := problem.Code(code); c.Known() {
		return c
	}
	return problem.Upstream
}

func (s *Service) cancelled(w *executor.Work, why string) schemas.Event {
	return call.Cancelled{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Reason: why}
}

func (s *Service) unknown(w *executor.Work, why string) schemas.Event {
	return call.Unknown{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Message: why}
}
