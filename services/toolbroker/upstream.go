package toolbroker

import (
	"context"
	"strings"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// onAdmitted makes an admitted call to its provider, in the order that makes a crash harmless: verify, claim, act,
// record, tell.
func (s *Service) onAdmitted(ctx context.Context, h bus.Heard) error {
	w, err := s.gate.Take(ctx, h)
	if err != nil || w == nil {
		return err
	}
	work, leave, err := s.gate.Enter(ctx, w)
	if why := executor.StoppedBy(err); why != "" {
		return s.endUnmade(ctx, w, s.cancelled(w, why), why)
	}
	if err != nil {
		return err
	}
	defer leave()
	known := s.state.Known(w.Tenant, w.Requested.Agent, w.Requested.Tool)
	name, short, _ := strings.Cut(w.Requested.Tool, ".")
	def, ok := s.state.Connection(w.Tenant, name)
	if !ok || known.Tool == nil {
		return s.refuse(ctx, w, problem.New(problem.NotFound, "connection %s, or its tool %s, is no more", name, short))
	}
	if known.Tool.Folded {
		return s.gate.Settle(ctx, w, s.tell(w, def, short))
	}
	provider, def, err := s.providers.provider(w.Tenant, def.Connection, w.Requested.Agent)
	if err != nil {
		return s.refuse(ctx, w, err)
	}
	c := upstream.Call{Call: w.Admitted.Call, Tool: short, Args: w.Requested.Body.Args, Schema: known.Tool.Schema, Effect: w.Requested.Effect, News: s.news(w), Client: s.client(work, w)}
	if known.Tool.Effect == connection.Pure {
		end, err := s.attempt(work, provider, c, w, def)
		if err != nil {
			return err
		}
		return s.settle(ctx, w, end)
	}
	held, err := s.gate.Claim(ctx, w)
	if err != nil {
		return err // somebody makes it, or did until a moment ago; heard again, its outcome or a lapsed claim is there
	}
	var end ending
	held.Keep(work, func(work context.Context) {
		if held.TakenOver() {
			end, err = s.takeOver(work, provider, known.Tool.Effect, c, w, def)
		} else {
			end, err = s.attempt(work, provider, c, w, def)
		}
	})
	if err != nil {
		return err
	}
	// A crash here: the effect is done and nobody knows. The admission is heard again, the claim has lapsed by then,
	// and takeOver finds the effect out.
	return s.settle(ctx, w, end)
}

// ending is how a call ended. late is what the provider answered although the grant had been revoked meanwhile: kept
// for auditors, never shown to a model.
type ending struct {
	outcome schemas.Event
	late    *upstream.Result
}

func (s *Service) settle(ctx context.Context, w *executor.Work, end ending) error {
	if err := s.gate.Settle(ctx, w, end.outcome); err != nil || end.late == nil {
		return err
	}
	return s.gate.Settle(ctx, w, call.Late{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Body: call.Result{Result: end.late.Content}})
}

// refuse ends a call that cannot be made.
func (s *Service) refuse(ctx context.Context, w *executor.Work, why error) error {
	return s.endUnmade(ctx, w, s.failed(w, why), problem.DetailOf(why).Message)
}

// endUnmade ends a call that this process does not begin, without effect. Somebody may have begun it before, and crashed:
// then nobody can say that it had no effect.
func (s *Service) endUnmade(ctx context.Context, w *executor.Work, without schemas.Event, why string) error {
	begun, err := s.gate.Claimed(ctx, w)
	if err != nil {
		return err
	}
	if !begun {
		return s.gate.Settle(ctx, w, without)
	}
	if _, err := s.gate.Claim(ctx, w); err != nil {
		return err // its owner still lives, and says itself how it ended
	}
	return s.gate.Settle(ctx, w, s.unknown(w, why+"; an earlier attempt was cut off"))
}

// attempt makes the call once and says how it ended. An error is no outcome: the process is ending, or could not
// keep its claim, and whoever hears the admission next finds out.
func (s *Service) attempt(ctx context.Context, p upstream.Provider, c upstream.Call, w *executor.Work, def connection.Defined) (ending, error) {
	began := s.now()
	call, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	result, err := p.Call(call, c)
	if err != nil && ctx.Err() != nil && executor.Stopped(ctx) == "" {
		return ending{}, problem.Wrap(err, problem.Unavailable, "the call was cut off")
	}
	if err == nil {
		err = s.askedByResult(ctx, w, result)
	}
	end := ending{outcome: s.outcome(ctx, result, err, w, def)}
	if why := executor.Stopped(ctx); err == nil && why != "" {
		end = ending{outcome: s.cancelled(w, why), late: &result}
		if s.writes(w) {
			end.outcome = s.unknown(w, why+" while the provider worked on the call; what it answered is recorded as late")
		}
	}
	s.metrics.upstream.WithLabelValues(string(def.Type), end.outcome.Kind()).Observe(s.now().Sub(began).Seconds())
	return end, nil
}

// takeOver ends a call whose earlier owner may have made it: by looking, by repeating what may be repeated, or by
// saying that nobody can know.
func (s *Service) takeOver(ctx context.Context, p upstream.Provider, effect connection.Effect, c upstream.Call, w *executor.Work, def connection.Defined) (ending, error) {
	switch effect {
	case connection.Keyed:
		end, err := s.attempt(ctx, p, c, w, def)
		if err != nil || !s.writes(w) {
			return end, err
		}
		// What this attempt did not do the earlier one may have done.
		const cut = "; an earlier attempt was cut off"
		switch ev := end.outcome.(type) {
		case call.Failed:
			end.outcome = s.unknown(w, ev.Message+cut)
		case call.Cancelled:
			end.outcome = s.unknown(w, ev.Reason+cut)
		}
		return end, nil
	case connection.Probeable:
		result, found, err := p.Probe(ctx, c)
		if err != nil {
			// Looking changes nothing, so it is tried again for as long as it takes; the call stays open meanwhile.
			return ending{}, problem.Wrap(err, problem.Unavailable, "the effect of an earlier attempt cannot be looked up now")
		}
		if !found {
			return s.attempt(ctx, p, c, w, def)
		}
		done := s.finished(w, def, result)
		done.Recovered = true
		return ending{outcome: done}, nil
	}
	return ending{outcome: s.unknown(w, "an earlier attempt was cut off, and this tool's effect cannot be looked up")}, nil
}

func (s *Service) outcome(ctx context.Context, result upstream.Result, err error, w *executor.Work, def connection.Defined) schemas.Event {
	switch {
	case err == nil && len(result.Content) > upstream.MaxResult:
		return s.finished(w, def, upstream.Result{ToolError: true, Content: []byte(`{"error":"the result was over 1 MiB and was dropped; the call was made"}`)})
	case err == nil:
		return s.finished(w, def, result)
	case upstream.Ambiguous(err) && s.writes(w):
		s.log.Warn("outcome unknown", "call", w.Admitted.Call, "tool", w.Admitted.Tool, "err", err)
		return s.unknown(w, "the provider's answer never came: "+problem.DetailOf(err).Message)
	case executor.Stopped(ctx) != "":
		return s.cancelled(w, executor.Stopped(ctx))
	}
	s.log.Warn("call failed", "call", w.Admitted.Call, "tool", w.Admitted.Tool, "err", err)
	return s.failed(w, err)
}

func (s *Service) failed(w *executor.Work, why error) schemas.Event {
	d := problem.DetailOf(why)
	return call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(d.Code), Message: d.Message,
		Body: call.Fault{Error: upstream.FaultOf(why)}}
}

func (s *Service) writes(w *executor.Work) bool {
	known := s.state.Known(w.Tenant, w.Requested.Agent, w.Requested.Tool)
	return known.Tool == nil || known.Tool.Writes
}

func (s *Service) finished(w *executor.Work, def connection.Defined, r upstream.Result) call.Finished {
	f := call.Finished{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, ToolError: r.ToolError, Body: call.Result{Result: r.Content}}
	if !def.Trusted {
		f.Taint = []string{string(def.Connection)}
	}
	return f
}

func (s *Service) unknown(w *executor.Work, why string) schemas.Event {
	return call.Unknown{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Message: why}
}

func (s *Service) cancelled(w *executor.Work, why string) schemas.Event {
	return call.Cancelled{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Reason: why}
}
