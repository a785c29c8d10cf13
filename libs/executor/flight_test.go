package executor

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// said tells flights of an event of the control stream.
func said(t *testing.T, f *flights, tenant id.Tenant, seq uint64, ev schemas.Event) {
	t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var key string
	switch ev := ev.(type) {
	case grant.Created:
		key = string(ev.Grant)
	case grant.Revoked:
		key = string(ev.Grant)
	case agent.Defined:
		key = string(ev.Agent)
	case connection.Defined:
		key = string(ev.Connection)
	}
	f.apply(eventlog.Stored{Stream: schemas.Control, Seq: seq, At: schemas.SubjectOf(tenant, ev.Kind(), key, ""),
		Envelope: schemas.Envelope{Type: schemas.TypeOf(schemas.EntryOf(ev)), Data: data}})
}

// A call that a connection lends to rests on the grant on that too, and on the connection.
func TestWhatEndsALentFlight(t *testing.T) {
	for name, c := range map[string]struct {
		take schemas.Event
		want string
	}{
		"the lent grant":      {grant.Revoked{Grant: "grt_lent"}, Revoked},
		"the grant":           {grant.Revoked{Grant: "grt_a"}, Revoked},
		"the lent connection": {connection.Defined{Connection: "con_github", Removed: true}, errRemoved.Message},
		"another grant":       {grant.Revoked{Grant: "grt_b"}, ""},
	} {
		g := newFlights()
		for _, name := range []id.Grant{"grt_a", "grt_b", "grt_lent"} {
			said(t, g, "tnt_a", 1, grant.Created{Grant: name, Agent: "agt_a"})
		}
		w := &Work{Tenant: "tnt_a", Requested: call.Requested{Call: "call_1", Agent: "agt_a", Tool: "machine.git_push"},
			Admitted: call.Admitted{Call: "call_1", Run: "run_a", Tool: "machine.git_push", Grant: "grt_a", Lent: call.Lent{Tool: "github.git_push", Grant: "grt_lent"}}}
		ctx, leave, err := g.enter(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		said(t, g, "tnt_a", 2, c.take)
		if got := Stopped(ctx); got != c.want {
			t.Errorf("%s is gone: %q, want %q", name, got, c.want)
		}
		leave()
		if _, leave, err := g.enter(t.Context(), w); StoppedBy(err) != c.want {
			t.Errorf("%s is gone, and it enters again: %v", name, err)
		} else if leave != nil {
			leave()
		}
	}
}

// What is in flight ends when its grant, its agent or its connection is no more or its run is cancelled, says which, and
// nothing else ends it.
func TestWhatEndsAFlight(t *testing.T) {
	g := newFlights()
	for _, name := range []id.Grant{"grt_a", "grt_b"} {
		said(t, g, "tnt_a", 1, grant.Created{Grant: name, Agent: "agt_a"})
	}
	enter := func(n id.Call, under id.Grant, a id.Agent, tool string, run id.Run) (ended func() string) {
		t.Helper()
		w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: n, Run: run, Grant: under}, Requested: call.Requested{Call: n, Agent: a, Tool: tool}}
		ctx, leave, err := g.enter(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return func() string { return Stopped(ctx) }
	}
	byGrant := enter("call_1", "grt_a", "agt_a", "github.x", "run_a")
	byAgent := enter("call_2", "grt_b", "agt_b", "github.x", "run_a")
	byConnection := enter("call_3", "grt_b", "agt_c", "tickets.x", "run_a")
	byRun := enter("call_6", "grt_b", "agt_c", "github.x", "run_b")
	stays := enter("call_4", "grt_b", "agt_c", "github.x", "run_a")

	said(t, g, "tnt_other", 2, agent.Defined{Agent: "agt_b", Removed: true})
	said(t, g, "tnt_other", 2, connection.Defined{Connection: "con_tickets", Removed: true})
	g.cancelRun(thing{Tenant: "tnt_other", ID: "run_b"})
	if byGrant()+byAgent()+byConnection()+byRun()+stays() != "" {
		t.Fatal("another tenant's end ended a flight")
	}
	said(t, g, "tnt_a", 2, grant.Revoked{Grant: "grt_a", Agent: "agt_a"})
	said(t, g, "tnt_a", 3, agent.Defined{Agent: "agt_b", Removed: true})
	said(t, g, "tnt_a", 4, connection.Defined{Connection: "con_tickets", Removed: true})
	g.cancelRun(thing{Tenant: "tnt_a", ID: "run_b"})
	if byGrant() != Revoked || byAgent() != errRemoved.Message || byConnection() != errRemoved.Message || byRun() != errRunEnds.Message {
		t.Errorf("ended: by grant %q, by agent %q, by connection %q, by run %q", byGrant(), byAgent(), byConnection(), byRun())
	}
	if stays() != "" {
		t.Error("a flight ended that nothing was said of")
	}
	for name, c := range map[string]struct {
		grant id.Grant
		agent id.Agent
		tool  string
		run   id.Run
		why   string
	}{
		"revoked grant":      {"grt_a", "agt_c", "github.x", "run_a", Revoked},
		"unknown grant":      {"grt_x", "agt_c", "github.x", "run_a", Revoked},
		"removed agent":      {"grt_b", "agt_b", "github.x", "run_a", errRemoved.Message},
		"removed connection": {"grt_b", "agt_c", "tickets.x", "run_a", errRemoved.Message},
		"cancelled run":      {"grt_b", "agt_c", "github.x", "run_b", errRunEnds.Message},
	} {
		w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: "call_5", Run: c.run, Grant: c.grant}, Requested: call.Requested{Agent: c.agent, Tool: c.tool}}
		if _, _, err := g.enter(t.Context(), w); StoppedBy(err) != c.why {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Defined again, it may be used again.
	said(t, g, "tnt_a", 5, agent.Defined{Agent: "agt_b"})
	enter("call_7", "grt_b", "agt_b", "github.x", "run_a")
}

// Runs that were cancelled are remembered up to a bound, the newest last.
func TestCancelledRunsAreBounded(t *testing.T) {
	f := newFlights()
	said(t, f, "tnt_a", 1, grant.Created{Grant: "grt_a", Agent: "agt_a"})
	for i := range 2*maxCancelled + 1 {
		f.cancelRun(thing{Tenant: "tnt_a", ID: strconv.Itoa(i)})
		f.cancelRun(thing{Tenant: "tnt_a", ID: strconv.Itoa(i)})
	}
	if len(f.cancelled) != maxCancelled || len(f.oldest) != maxCancelled {
		t.Errorf("%d and %d are remembered", len(f.cancelled), len(f.oldest))
	}
	w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Grant: "grt_a", Run: id.Run(strconv.Itoa(2 * maxCancelled))}}
	if _, _, err := f.enter(t.Context(), w); StoppedBy(err) != errRunEnds.Message {
		t.Error("the newest is forgotten")
	}
}
