package calls_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/run"
)

func fold(events ...schemas.Event) *calls.State {
	set := calls.Set{}
	for i, ev := range events {
		set.Apply(uint64(i+1), ev)
	}
	if set["call_1"] == nil {
		return &calls.State{}
	}
	return set["call_1"]
}

var (
	requested = call.Requested{Call: "call_1", Tool: "a.b"}
	held      = call.Held{Call: "call_1"}
	admitted  = call.Admitted{Call: "call_1"}
	refused   = call.Refused{Call: "call_1"}
	finished  = call.Finished{Call: "call_1"}
	failed    = call.Failed{Call: "call_1"}
	late      = call.Late{Call: "call_1"}
)

func TestFirstCounts(t *testing.T) {
	for name, c := range map[string]struct {
		events             []schemas.Event
		admitted, outcome  uint64 // sequences
		held, decided, end bool
	}{
		"nothing":                      {},
		"requested":                    {events: []schemas.Event{requested}},
		"admitted":                     {events: []schemas.Event{requested, admitted}, admitted: 2, decided: true},
		"admitted twice":               {events: []schemas.Event{requested, admitted, admitted}, admitted: 2, decided: true},
		"held":                         {events: []schemas.Event{requested, held}, held: true, decided: true},
		"held, then admitted":          {events: []schemas.Event{requested, held, admitted}, held: true, admitted: 3, decided: true},
		"held, then refused":           {events: []schemas.Event{requested, held, refused, admitted}, held: true, outcome: 3, decided: true, end: true},
		"admitted, then held":          {events: []schemas.Event{requested, admitted, held}, admitted: 2, decided: true},
		"admitted, then refused":       {events: []schemas.Event{requested, admitted, refused}, admitted: 2, decided: true},
		"refused, then admitted":       {events: []schemas.Event{requested, refused, admitted}, outcome: 2, decided: true, end: true},
		"refused, then held":           {events: []schemas.Event{requested, refused, held}, outcome: 2, decided: true, end: true},
		"finished, then failed":        {events: []schemas.Event{requested, admitted, finished, failed}, admitted: 2, outcome: 3, decided: true, end: true},
		"failed, then finished":        {events: []schemas.Event{requested, admitted, failed, finished}, admitted: 2, outcome: 3, decided: true, end: true},
		"late alone is no outcome":     {events: []schemas.Event{requested, admitted, late}, admitted: 2, decided: true},
		"late after the outcome":       {events: []schemas.Event{requested, admitted, failed, late}, admitted: 2, outcome: 3, decided: true, end: true},
		"another call's outcome":       {events: []schemas.Event{requested, admitted, call.Finished{Call: "call_2"}}, admitted: 2, decided: true},
		"what is no call's":            {events: []schemas.Event{requested, run.Created{}, admitted}, admitted: 3, decided: true},
		"refused after it had an end":  {events: []schemas.Event{requested, finished, refused}, outcome: 2, decided: true, end: true},
		"requested twice, other words": {events: []schemas.Event{requested, call.Requested{Call: "call_1", Tool: "x.y"}}},
	} {
		s := fold(c.events...)
		if s.AdmittedSeq != c.admitted || s.OutcomeSeq != c.outcome || (s.Held != nil) != c.held || s.Decided() != c.decided ||
			(s.Outcome != nil) != c.end || s.Settled() != (c.admitted > 0 || c.end) || (s.Admitted != nil) != (c.admitted > 0) {
			t.Errorf("%s: %+v", name, s)
		}
		if s.Requested != nil && (s.Requested.Tool != "a.b" || s.RequestedSeq != 1) {
			t.Errorf("%s: the request is %+v at %d", name, s.Requested, s.RequestedSeq)
		}
	}
}

// In whatever order events come, and however often, the first decision and the first outcome stay what they are.
func TestFirstStays(t *testing.T) {
	all := []schemas.Event{requested, held, admitted, refused, finished, failed, call.Cancelled{Call: "call_1"}, call.Unknown{Call: "call_1"}, late}
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.SampledFrom(all), 0, 20).Draw(t, "events")
		set := calls.Set{}
		var before calls.State
		for i, ev := range events {
			set.Apply(uint64(i+1), ev)
			now := set["call_1"]
			if now == nil {
				continue
			}
			if before.Outcome != nil && (now.Outcome.Kind() != before.Outcome.Kind() || now.OutcomeSeq != before.OutcomeSeq) {
				t.Fatalf("the outcome at %d gave way to %T at %d", before.OutcomeSeq, now.Outcome, now.OutcomeSeq)
			}
			if before.Admitted != nil && now.AdmittedSeq != before.AdmittedSeq || before.Requested != nil && now.RequestedSeq != before.RequestedSeq {
				t.Fatalf("%+v became %+v", before, now)
			}
			if before.Outcome != nil && before.Admitted == nil && now.Admitted != nil {
				t.Fatal("a call that ended is admitted")
			}
			if (before.Decided() && !now.Decided()) || (before.Settled() && !now.Settled()) {
				t.Fatalf("%+v became %+v", before, now)
			}
			before = *now
		}
		// Hearing the whole again changes nothing, except that what was first is first still.
		again := calls.Set{}
		for i, ev := range slices.Concat(events, events) {
			again.Apply(uint64(i+1), ev)
		}
		if s := again["call_1"]; s != nil && (s.OutcomeSeq != before.OutcomeSeq && before.Outcome != nil || s.AdmittedSeq != before.AdmittedSeq && before.Admitted != nil) {
			t.Fatalf("%+v after a second hearing, was %+v", s, before)
		}
	})
}

func TestRead(t *testing.T) {
	k := servicekit.Start(t)
	say := func(s schemas.Service, r string, route call.Route, ev schemas.Event) uint64 {
		return k.Say(s, eventlog.Draft{Key: r, Route: route, Event: ev})
	}
	first := say(schemas.Agentloop, "run_1", "", requested)
	say(schemas.Agentloop, "run_2", "", call.Requested{Call: "call_1", Tool: "other.run"}) // one id in two runs is two calls
	say(schemas.Toolbroker, "run_2", "", refused)
	// What cannot be read decides nothing, also in front of what can.
	if _, err := k.Boot.JS.Publish(t.Context(), "ew.v1.tnt_a.call.run_1.refused", []byte("{")); err != nil {
		t.Fatal(err)
	}
	second := say(schemas.Toolbroker, "run_1", call.Upstream, admitted)
	s, err := calls.Read(t.Context(), k.As(schemas.Agentloop), servicekit.Tenant, "run_1", "call_1", first)
	if err != nil || s.RequestedSeq != first || s.AdmittedSeq != second || s.Outcome != nil || s.Requested.Tool != "a.b" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = calls.Read(t.Context(), k.As(schemas.Agentloop), servicekit.Tenant, "run_3", "call_1", 1); err != nil || s == nil || s.Requested != nil {
		t.Errorf("a call that is not there: %+v, %v", s, err)
	}
	if s, err = calls.Read(t.Context(), k.As(schemas.Agentloop), "tnt_b", "run_1", "call_1", 1); err != nil || s.Requested != nil {
		t.Errorf("another tenant's call: %+v, %v", s, err)
	}
}

// A hint saves reading, and decides nothing: whoever sends one that is wrong has the call read as without.
func TestHinted(t *testing.T) {
	k := servicekit.Start(t)
	say := func(s schemas.Service, r string, route call.Route, ev schemas.Event) uint64 {
		return k.Say(s, eventlog.Draft{Key: r, Route: route, Event: ev})
	}
	elsewhere := say(schemas.Toolbroker, "run_2", call.Upstream, finished)
	first := say(schemas.Agentloop, "run_1", "", requested)
	decided := say(schemas.Toolbroker, "run_1", call.Upstream, admitted)
	another := say(schemas.Toolbroker, "run_1", call.Upstream, call.Finished{Call: "call_2"})
	foreign := k.Say(schemas.Toolbroker, eventlog.Draft{Tenant: "tnt_b", Key: "run_1", Route: call.Upstream, Event: finished})
	again := say(schemas.Toolbroker, "run_2", call.Upstream, finished)
	log := k.As(schemas.Gateway)
	for name, hint := range map[string]uint64{"no": 0, "of a request": first, "of a decision": decided, "of another call": another, "of another tenant": foreign,
		"of another run": again, "of what was before": elsewhere, "of nothing": 1 << 40} {
		s, err := calls.Hinted(t.Context(), log, servicekit.Tenant, "run_1", "call_1", first, hint)
		if err != nil || s.Outcome != nil || s.AdmittedSeq != decided {
			t.Errorf("a hint %s: %+v, %v", name, s, err)
		}
	}
	end := say(schemas.Toolbroker, "run_1", call.Upstream, failed)
	for name, hint := range map[string]uint64{"that is right": end, "that is wrong": decided} {
		s, err := calls.Hinted(t.Context(), log, servicekit.Tenant, "run_1", "call_1", first, hint)
		if err != nil || s.OutcomeSeq != end || s.Outcome.Kind() != "call.failed" {
			t.Errorf("a hint %s: %+v, %v", name, s, err)
		}
	}
}
