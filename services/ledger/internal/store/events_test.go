package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// all follows an answer to its end.
func all(t *testing.T, s *Store, q EventQuery) (seqs []uint64, pages int) {
	t.Helper()
	for {
		page, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, e := range page.Events {
			seqs = append(seqs, e.Seq)
		}
		if !page.More {
			return seqs, pages
		}
		q.After = page.Next
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 600, 2))
	own := EventQuery{Tenant: "tenant_0", Stream: activity, Limit: 7} // the even ones

	for name, c := range map[string]struct {
		ask  func(*EventQuery)
		pass func(Record) bool
	}{
		"all":           {func(*EventQuery) {}, func(Record) bool { return true }},
		"after":         {func(q *EventQuery) { q.After = 300 }, func(r Record) bool { return r.Seq > 300 }},
		"run":           {func(q *EventQuery) { q.Run = "run_7" }, func(r Record) bool { return r.Meta.Run == "run_7" }},
		"noun":          {func(q *EventQuery) { q.Noun = "run" }, func(r Record) bool { return r.Meta.Noun == "run" }},
		"noun and key":  {func(q *EventQuery) { q.Noun, q.Key = "call", "run_9" }, func(r Record) bool { return r.Meta.Noun == "call" && r.Meta.Key == "run_9" }},
		"key":           {func(q *EventQuery) { q.Key = "run_9" }, func(r Record) bool { return r.Meta.Key == "run_9" }},
		"actor":         {func(q *EventQuery) { q.Actor = "agent_2" }, func(r Record) bool { return r.Meta.Actor == "agent_2" }},
		"kind":          {func(q *EventQuery) { q.Kind = "started" }, func(r Record) bool { return r.Meta.Kind == "started" }},
		"kind glob":     {func(q *EventQuery) { q.Kind = "re*ed" }, func(r Record) bool { return r.Meta.Kind == "requested" }},
		"no wildcard":   {func(q *EventQuery) { q.Kind = "%" }, func(Record) bool { return false }},
		"underscore":    {func(q *EventQuery) { q.Kind = "_tarted" }, func(Record) bool { return false }},
		"hostile":       {func(q *EventQuery) { q.Actor = "' OR true --\x00\xff" }, func(Record) bool { return false }},
		"several":       {func(q *EventQuery) { q.Run, q.Actor, q.Kind = "run_8", "agent_1", "*" }, func(r Record) bool { return r.Meta.Run == "run_8" && r.Meta.Actor == "agent_1" }},
		"another's run": {func(q *EventQuery) { q.Run = "run_none" }, func(Record) bool { return false }},
	} {
		var want []uint64
		for _, r := range records(1, 600, 2) {
			if r.Tenant == "tenant_0" && c.pass(r) {
				want = append(want, r.Seq)
			}
		}
		q := own
		c.ask(&q)
		if got, _ := all(t, s, q); !slices.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
		if name == "after" {
			continue
		}
		q.Newest = true
		slices.Reverse(want)
		if got, _ := all(t, s, q); !slices.Equal(got, want) {
			t.Errorf("%s, newest first: %v\nwant %v", name, got, want)
		}
	}

	// An empty page says where to wait.
	page, err := s.Events(t.Context(), EventQuery{Tenant: "tenant_0", Stream: activity, After: 600})
	if err != nil || page.Next != 600 || page.More || page.Events != nil {
		t.Errorf("at the end: %+v, %v", page, err)
	}
	if _, err := s.Events(t.Context(), EventQuery{Stream: activity}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("no tenant: %v", err)
	}
}

func TestPagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	batch := records(1, 40, 1)
	for i := range batch {
		batch[i].Raw = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	ingest(t, s, batch)
	page, err := s.Events(t.Context(), EventQuery{Tenant: "tenant_0", Stream: activity, Limit: 1000})
	if err != nil || len(page.Events) != 9 || !page.More {
		t.Errorf("%d events of one MiB, more %v, %v", len(page.Events), page.More, err)
	}
	if got, pages := all(t, s, EventQuery{Tenant: "tenant_0", Stream: activity, Limit: 1000}); len(got) != 40 || pages != 5 {
		t.Errorf("%d events in %d pages", len(got), pages)
	}
}

func TestEvent(t *testing.T) {
	t.Parallel()
	s := setup(t)
	want := record(41, 2)
	ingest(t, s, records(1, 50, 2))
	// Said again after the stream forgot the id: another leaf, and the first one counts.
	again := record(51, 2)
	again.Meta = want.Meta
	ingest(t, s, []Record{again})

	e, err := s.Event(t.Context(), "tenant_1", "evt_41")
	if err != nil {
		t.Fatal(err)
	}
	if e.Seq != 41 || e.TreeSeq != 20 || e.Meta != want.Meta || e.Subject != want.Subject || !bytes.Equal(e.Raw, want.Raw) || !e.StoredAt.Equal(want.StoredAt) || time.Since(e.RecordedAt) > time.Hour {
		t.Errorf("%+v", e)
	}
	for tenant, id := range map[string]string{"tenant_0": "evt_41", "tenant_1": "evt_none", "%": "evt_41"} {
		if _, err := s.Event(t.Context(), tenant, id); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%s asks for %s: %v", tenant, id, err)
		}
	}
}

// TestTenantsAreApart asks without a condition: the policies are what keeps tenants apart then.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	s := filled(t)
	for _, table := range []string{"ledger_leaf", "ledger_body", "ledger_hash", "ledger_tree", "ledger_checkpoint", "ledger_run"} {
		for tenant, want := range map[string]bool{"tenant_1": true, "tenant_x": false} {
			var own, others int
			err := s.read(t.Context(), tenant, func(tx pgx.Tx) error {
				return tx.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FILTER (WHERE tenant = $1), count(*) FILTER (WHERE tenant <> $1) FROM %s`, table), tenant).Scan(&own, &others)
			})
			if err != nil || others != 0 || (own > 0) != want {
				t.Errorf("%s sees %d own and %d other rows of %s, %v", tenant, own, others, table, err)
			}
		}
	}
	err := s.read(t.Context(), "tenant_1", func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT * FROM ledger_cursor`)
		return err
	})
	if err == nil {
		t.Error("a reader reads the cursors")
	}
	// The role and the tenant end with the transaction.
	if n := count(t, s, `SELECT count(*) FROM pg_stat_activity WHERE current_user <> session_user OR current_setting('ew.tenant', true) <> ''`); n != 0 {
		t.Error("a connection went back to the pool as the reader")
	}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 95, 1))
	ingest(t, s, records(96, 100, 1))
	var runs []Run
	for before := uint64(0); ; {
		page, err := s.Runs(t.Context(), "tenant_0", activity, before, 4)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, page.Runs...)
		if before = page.Next; before == 0 {
			break
		}
	}
	if len(runs) != 11 || runs[0].Run != "run_10" || runs[10].Run != "run_0" {
		t.Fatalf("%d runs: %+v", len(runs), runs)
	}
	at := func(seq uint64) time.Time { return record(seq, 1).StoredAt }
	want := Run{"tenant_0", activity, "run_9", 90, 99, 10, "agent_0", "started", at(90), at(99)}
	if runs[1] != want {
		t.Errorf("%+v\nwant %+v", runs[1], want)
	}
	page, err := s.Timeline(t.Context(), "tenant_0", activity, "run_9", 0, 0)
	if err != nil || len(page.Events) != 10 || page.Events[0].Seq != 90 {
		t.Errorf("timeline: %+v, %v", page, err)
	}
	if page, err := s.Runs(t.Context(), "tenant_1", activity, 0, 0); err != nil || len(page.Runs) != 0 {
		t.Errorf("another tenant's runs: %+v, %v", page, err)
	}
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 10, 1))
	due, err := s.Due(t.Context(), 10)
	if err != nil || len(due) != 1 || due[0].Size != 10 {
		t.Fatalf("due: %+v, %v", due, err)
	}
	checkpoint(t, s, key)
	if due, err := s.Due(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("due again without growth: %+v, %v", due, err)
	}
	c := merkle.Checkpoint{Origin: merkle.Origin("example.org", "tenant_0", activity), Size: 10, Root: due[0].Root}
	if err := s.SaveCheckpoint(t.Context(), "tenant_0", activity, c, []byte("again")); err != nil {
		t.Errorf("saved twice: %v", err)
	}
	c.Root[0] ^= 1
	if err := s.SaveCheckpoint(t.Context(), "tenant_0", activity, c, []byte("other")); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("another root for the same size: %v", err)
	}
	ingest(t, s, records(11, 30, 1))
	checkpoint(t, s, key)
	list, err := s.Checkpoints(t.Context(), "tenant_0", activity, 0, 1)
	if err != nil || len(list) != 1 || list[0].Size != 10 {
		t.Fatalf("the first: %+v, %v", list, err)
	}
	if list, err = s.Checkpoints(t.Context(), "tenant_0", activity, 10, 5); err != nil || len(list) != 1 || list[0].Size != 30 {
		t.Errorf("the rest: %+v, %v", list, err)
	}
}

// TestProofs proves events from every corner of a tree that has two stored levels.
func TestProofs(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 700, 1))
	if _, err := s.ProveEvent(t.Context(), "tenant_0", "evt_1"); problem.CodeOf(err) != problem.Pending {
		t.Errorf("before a checkpoint: %v", err)
	}
	checkpoint(t, s, key)
	ingest(t, s, records(701, 1900, 1))
	checkpoint(t, s, key)
	for _, seq := range []int{1, 2, 255, 256, 257, 512, 513, 699, 700, 701, 1024, 1899, 1900} {
		p, err := s.ProveEvent(t.Context(), "tenant_0", fmt.Sprintf("evt_%d", seq))
		if err != nil {
			t.Fatal(err)
		}
		head, err := merkle.Open(merkle.Origin("example.org", "tenant_0", activity), p.Checkpoint.Note, public(key))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Inclusion.Check(merkle.Leaf(p.Event.Raw), head.Root); err != nil {
			t.Errorf("event %d: %v", seq, err)
		}
	}
	list, err := s.Checkpoints(t.Context(), "tenant_0", activity, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	grew, err := s.ProveConsistency(t.Context(), "tenant_0", activity, 700, 1900)
	if err != nil {
		t.Fatal(err)
	}
	if err := grew.Check(merkle.Hash(list[0].Root), merkle.Hash(list[1].Root)); err != nil {
		t.Error(err)
	}
	if _, err := s.ProveConsistency(t.Context(), "tenant_0", activity, 700, 5000); problem.CodeOf(err) != problem.Internal {
		t.Errorf("a tree that is not there: %v", err)
	}
}

func TestLeaves(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 100, 2))
	next := int64(10)
	for leaf, err := range s.Leaves(t.Context(), "tenant_1", activity, 10, 40) {
		if err != nil {
			t.Fatal(err)
		}
		if leaf.TreeSeq != next || merkle.Leaf(leaf.Event.Raw) != leaf.Hash {
			t.Fatalf("leaf %d: %+v", next, leaf)
		}
		next++
		if next == 30 {
			break // early: nothing may leak
		}
	}
	for _, err := range s.Leaves(t.Context(), "", activity, 0, 1) {
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("no tenant: %v", err)
		}
	}
}
