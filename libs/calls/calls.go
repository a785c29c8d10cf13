// Package calls folds the events of calls. The rule that the first decision and the first outcome count, by stream
// sequence, is here and nowhere else.
package calls

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// State is one call as far as its events go.
type State struct {
	Requested    *call.Requested
	RequestedSeq uint64
	RequestedAt  time.Time // set by Read

	Held        *call.Held
	Admitted    *call.Admitted
	AdmittedSeq uint64

	Outcome    schemas.Event // nil while the call is open
	OutcomeSeq uint64
}

// Decided says whether the broker has decided, for good or by holding the call.
func (s *State) Decided() bool { return s.Held != nil || s.Admitted != nil || s.Outcome != nil }

// Settled says whether the call is past any approval: admitted, or with its outcome.
func (s *State) Settled() bool { return s.Admitted != nil || s.Outcome != nil }

// Set is the calls of one run, by id.
type Set map[id.Call]*State

// Apply takes the next event, in stream order. Events that are not a call's are passed over.
func (set Set) Apply(seq uint64, ev schemas.Event) {
	switch ev := ev.(type) {
	case call.Requested:
		if s := set.of(ev.Call); s.Requested == nil {
			s.Requested, s.RequestedSeq = &ev, seq
		}
	case call.Held:
		if s := set.of(ev.Call); !s.Decided() {
			s.Held = &ev
		}
	case call.Admitted:
		if s := set.of(ev.Call); !s.Settled() {
			s.Admitted, s.AdmittedSeq = &ev, seq
		}
	case call.Refused:
		if s := set.of(ev.Call); !s.Settled() {
			s.Outcome, s.OutcomeSeq = ev, seq
		}
	case call.Finished:
		set.end(ev.Call, seq, ev)
	case call.Failed:
		set.end(ev.Call, seq, ev)
	case call.Cancelled:
		set.end(ev.Call, seq, ev)
	case call.Unknown:
		set.end(ev.Call, seq, ev)
	}
}

// Of is the call that an event is about; "" for what is no call's.
func Of(ev schemas.Event) id.Call {
	switch ev := ev.(type) {
	case call.Requested:
		return ev.Call
	case call.Held:
		return ev.Call
	case call.Admitted:
		return ev.Call
	case call.Refused:
		return ev.Call
	case call.Finished:
		return ev.Call
	case call.Failed:
		return ev.Call
	case call.Cancelled:
		return ev.Call
	case call.Unknown:
		return ev.Call
	case call.Late:
		return ev.Call
	}
	return ""
}

func (set Set) of(c id.Call) *State {
	s := set[c]
	if s == nil {
		s = &State{}
		set[c] = s
	}
	return s
}

func (set Set) end(c id.Call, seq uint64, ev schemas.Event) {
	if s := set.of(c); s.Outcome == nil {
		s.Outcome, s.OutcomeSeq = ev, seq
	}
}

// Filter covers the calls of a run.
func Filter(tenant id.Tenant, run id.Run) string {
	return schemas.SubjectOf(tenant, "call.requested", string(run), "").Filter()
}

// Read folds one call from the sequence of its request on.
func Read(ctx context.Context, log *eventlog.Log, tenant id.Tenant, run id.Run, c id.Call, from uint64) (*State, error) {
	set := Set{}
	for s, err := range log.Read(ctx, schemas.Activity, Filter(tenant, run), from) {
		if err != nil {
			return nil, err
		}
		if ev, err := s.Envelope.Decode(); err == nil {
			set.Apply(s.Seq, ev)
		}
		if state := set.of(c); state.RequestedSeq == s.Seq {
			state.RequestedAt = s.Envelope.Time
		}
	}
	return set.of(c), nil
}

// Hinted is Progress for whoever was told where the outcome is: that one message is read, if it is the call's outcome. Its
// executor owned the call when it said so, and says nothing twice.
func Hinted(ctx context.Context, log *eventlog.Log, tenant id.Tenant, run id.Run, c id.Call, requested, hint uint64) (*State, error) {
	if hint > requested {
		s, err := log.ReadAt(ctx, schemas.Activity, hint)
		if err == nil && s.At.Tenant == tenant && s.At.Key == string(run) {
			set := Set{}
			if ev, err := s.Envelope.Decode(); err == nil && Of(ev) == c {
				set.Apply(s.Seq, ev)
			}
			if state := set.of(c); state.Outcome != nil {
				return state, nil
			}
		}
	}
	return Progress(ctx, log, tenant, run, c, requested) // anybody may send a hint
}

// Progress folds what came of one call since its request, which whoever asked has, and stops at the outcome: the first counts.
func Progress(ctx context.Context, log *eventlog.Log, tenant id.Tenant, run id.Run, c id.Call, requested uint64) (*State, error) {
	set := Set{}
	for s, err := range log.Read(ctx, schemas.Activity, Filter(tenant, run), requested+1) {
		if err != nil {
			return nil, err
		}
		ev, err := s.Envelope.Decode()
		if err != nil || Of(ev) != c {
			continue
		}
		if set.Apply(s.Seq, ev); set.of(c).Outcome != nil {
			break
		}
	}
	return set.of(c), nil
}
