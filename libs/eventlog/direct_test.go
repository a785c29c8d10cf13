package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// A read that takes several answers gives everything; one whose answer does not come in time gives an error, since an
// end would say that nothing more is stored.
func TestReadIsWholeOrFails(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, string(schemas.Agentloop)))
	run := id.New[id.Run]()
	const n = 600 // more than two batches
	for range n {
		_, err := log.Append(t.Context(), eventlog.Draft{Tenant: "tnt_main", Key: string(run), Run: run, Actor: "agt_a",
			Event: call.Requested{Call: id.New[id.Call](), Run: run}})
		if err != nil {
			t.Fatal(err)
		}
	}
	filter := schemas.SubjectOf("tnt_main", "call.requested", string(run), "").Filter()
	got, last := 0, uint64(0)
	for s, err := range log.Read(t.Context(), schemas.Activity, filter, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Seq <= last {
			t.Fatalf("sequence %d after %d", s.Seq, last)
		}
		got, last = got+1, s.Seq
	}
	if got != n {
		t.Errorf("read %d events, not %d", got, n)
	}

	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	var err error
	for _, err = range log.Read(late, schemas.Activity, filter, 1) {
		if err == nil {
			t.Fatal("an event after the deadline")
		}
	}
	if problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a read out of time ended with %v", err)
	}
	if _, err := log.ReadAt(late, schemas.Activity, last); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a read of one event out of time ended with %v", err)
	}
}

// What a reader does not want is neither fetched nor an error.
func TestReadStopsWhenAsked(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, string(schemas.Agentloop)))
	run := id.New[id.Run]()
	for range 3 {
		_, err := log.Append(t.Context(), eventlog.Draft{Tenant: "tnt_main", Key: string(run), Run: run, Actor: "agt_a",
			Event: call.Requested{Call: id.New[id.Call](), Run: run}})
		if err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	for _, err := range log.Read(t.Context(), schemas.Activity, "ew.v1.tnt_main.call.>", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if got++; got == 2 {
			break
		}
	}
	if got != 2 {
		t.Errorf("%d events, not 2", got)
	}
}
