package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/pgkit"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// roots are what every tenant's tree comes to.
func roots(t testing.TB, s *Store, tenants int) map[string]merkle.Hash {
	t.Helper()
	all := make(map[string]merkle.Hash)
	for i := range tenants {
		tenant := record(uint64(i), tenants).Tenant
		heads, err := s.Heads(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range heads {
			all[h.Tenant+"/"+h.Stream] = h.Root
		}
	}
	return all
}

// TestReplayGivesEqualRoots takes the same stream in twice, cut into other batches.
func TestReplayGivesEqualRoots(t *testing.T) {
	t.Parallel()
	const n, tenants = 2100, 7
	one, other := setup(t), setup(t)
	ingest(t, one, records(1, n, tenants))
	for _, batch := range []([]Record){records(1, 1, tenants), records(2, 999, tenants), records(1000, 1001, tenants), records(1002, n, tenants)} {
		ingest(t, other, batch)
	}
	a, b := roots(t, one, tenants), roots(t, other, tenants)
	if len(a) != tenants {
		t.Fatalf("%d trees", len(a))
	}
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s: %v and %v", name, a[name], b[name])
		}
	}
	// And they are the roots that the bytes come to.
	var tree merkle.Frontier
	for _, r := range records(1, n, tenants) {
		if r.Tenant == "tenant_3" {
			tree.Append(merkle.Leaf(r.Raw), nil)
		}
	}
	if a["tenant_3/"+activity] != tree.Root() {
		t.Error("the root is not that of the bytes")
	}
}

func TestRedelivery(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 10, 2))
	ingest(t, s, records(1, 10, 2))
	ingest(t, s, records(4, 15, 2))
	if n := count(t, s, `SELECT count(*) FROM ledger_leaf`); n != 15 {
		t.Errorf("%d leaves", n)
	}
	if n := count(t, s, `SELECT sum(events) FROM ledger_run`); n != 15 {
		t.Errorf("the runs count %d events", n)
	}
}

func TestCursor(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if c, err := s.Cursor(t.Context(), activity); err != nil || c != (Cursor{Stream: activity}) {
		t.Errorf("before anything: %+v, %v", c, err)
	}
	ingest(t, s, records(41, 50, 1)) // retention took the first forty
	want := Cursor{Stream: activity, Incarnation: "first", First: 41, Last: 50}
	if c, err := s.Cursor(t.Context(), activity); err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}

	var missing *GapError
	if err := s.Ingest(t.Context(), records(52, 60, 1)); !errors.As(err, &missing) || *missing != (GapError{activity, 51, 52}) {
		t.Errorf("a gap: %v", err)
	}
	if problem.CodeOf(s.Ingest(t.Context(), records(52, 60, 1))) != problem.Conflict {
		t.Error("a gap is a conflict")
	}
	holed := append(records(51, 52, 1), record(54, 1))
	if err := s.Ingest(t.Context(), holed); !errors.As(err, &missing) || missing.Want != 53 {
		t.Errorf("a gap within the batch: %v", err)
	}

	anew := records(51, 52, 1)
	for i := range anew {
		anew[i].Incarnation = "second"
	}
	var other *IncarnationError
	if err := s.Ingest(t.Context(), anew); !errors.As(err, &other) || *other != (IncarnationError{activity, "first", "second"}) {
		t.Errorf("another incarnation: %v", err)
	}
	if c, err := s.Cursor(t.Context(), activity); err != nil || c != want {
		t.Errorf("a refused batch moved the cursor: %+v, %v", c, err)
	}
}

func TestBadBatches(t *testing.T) {
	t.Parallel()
	s := setup(t)
	change := func(f func(*Record)) []Record {
		batch := records(1, 3, 1)
		f(&batch[1])
		return batch
	}
	for name, batch := range map[string][]Record{
		"two streams":        change(func(r *Record) { r.Stream = "EW_CONTROL" }),
		"two incarnations":   change(func(r *Record) { r.Incarnation = "second" }),
		"no tenant":          change(func(r *Record) { r.Tenant = "" }),
		"a tenant with zero": change(func(r *Record) { r.Tenant = "a\x00b" }),
		"a long tenant":      change(func(r *Record) { r.Tenant = strings.Repeat("x", 3000) }),
		"out of order":       change(func(r *Record) { r.Seq = 1 }),
		"sequence zero":      change(func(r *Record) { r.Seq = 0 }),
		"a huge sequence":    change(func(r *Record) { r.Seq = 1 << 63 }),
	} {
		if err := s.Ingest(t.Context(), batch); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Ingest(t.Context(), nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// TestWritersAtOnce: two instances take in the same stream without knowing of each other.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	const n, tenants, size = 2000, 5, 50
	s := setup(t)
	var wg sync.WaitGroup
	for writer := range 2 {
		wg.Go(func() {
			own := New(s.pool)
			for from := uint64(1); from <= n; from += size {
				// Batches overlap in other places for each writer; a gap means that the other one has not got so far.
				batch := records(from, min(from+size-1+uint64(writer)*7, n), tenants)
				if err := own.Ingest(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if c, err := s.Cursor(t.Context(), activity); err != nil || c.Last != n {
		t.Errorf("%+v, %v", c, err)
	}
	if got := count(t, s, `SELECT count(*) FROM ledger_leaf`); got != n {
		t.Errorf("%d leaves", got)
	}
	alone := setup(t)
	ingest(t, alone, records(1, n, tenants))
	a, b := roots(t, s, tenants), roots(t, alone, tenants)
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s forked", name)
		}
	}
}

// TestCommitFaults: the connection breaks at the commit, and nobody can tell whether it took effect.
func TestCommitFaults(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"not persisted": false, "persisted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			ingest(t, s, records(1, 10, 2))
			failCommit(s, kept)
			if err := s.Ingest(t.Context(), records(11, 20, 2)); problem.CodeOf(err) != problem.Unavailable {
				t.Fatalf("the fault: %v", err)
			}
			want := uint64(10)
			if kept {
				want = 20
			}
			if c, err := s.Cursor(t.Context(), activity); err != nil || c.Last != want {
				t.Fatalf("after the fault: %+v, %v", c, err)
			}
			ingest(t, s, records(11, 20, 2)) // the stream delivers it again
			ingest(t, s, records(21, 25, 2))
			alone := setup(t)
			ingest(t, alone, records(1, 25, 2))
			a, b := roots(t, s, 2), roots(t, alone, 2)
			for tenant := range b {
				if a[tenant] != b[tenant] {
					t.Errorf("%s: another root after the fault", tenant)
				}
			}
			if n := count(t, s, `SELECT sum(events) FROM ledger_run`); n != 25 {
				t.Errorf("the runs count %d events", n)
			}
		})
	}
}

// TestServerKillsTheWriter: the transaction is open, the bodies are copied, and the session ends.
func TestServerKillsTheWriter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	real := s.commit
	s.commit = func(ctx context.Context, tx pgx.Tx) error {
		s.commit = real
		execute(t, s.pool, `SELECT pg_terminate_backend($1)`, int64(tx.Conn().PgConn().PID()))
		return tx.Commit(ctx)
	}
	if err := s.Ingest(t.Context(), records(1, 10, 2)); problem.CodeOf(err) != problem.Unavailable {
		t.Fatalf("the killed session: %v", err)
	}
	if n := count(t, s, `SELECT count(*) FROM ledger_body`); n != 0 {
		t.Errorf("%d bodies of a transaction that ended", n)
	}
	ingest(t, s, records(1, 10, 2))
}

// TestPoison: bytes that Postgres cannot hold as jsonb or as text must not stop the ledger.
func TestPoison(t *testing.T) {
	t.Parallel()
	poison := []string{
		``, `not json`, `{"a":`, "\xff\xfe", "\x00", `{"a":"\u0000"}`, `{"\u0000":1}`, `"\ud800"`, `"\udc00\ud800"`, `"\ud800\u0041"`,
		`"\ud800x"`, `1e400000`, `[1e131072]`, `1e-99999`, strings.Repeat("9", 200_000), strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		`{"a":1}{"a":2}`, "\ufeff{}", `"\\u0000"`, `"\ud83d\ude00"`, `"\\\\\u0041"`, `{"a":1,"a":2}`, `-0`, `1.50e+3`, strings.Repeat(" ", 2<<20) + `1`,
		`"` + strings.Repeat("x", 1<<20) + `"`,
	}
	s := setup(t)
	batch := records(1, uint64(len(poison)), 1)
	for i := range batch {
		batch[i].Raw = []byte(poison[i])
	}
	long := strings.Repeat("k", 300)
	metas := []Meta{
		{EventID: "a\x00b"}, {Run: "\xff"}, {Key: long, EventID: "evt_long"}, {Noun: "run", Actor: long},
	}
	for i, m := range metas {
		r := record(uint64(len(poison)+1+i), 1)
		r.Meta = m
		r.Subject = "ew.v1.\xff\x00"
		batch = append(batch, r)
	}
	ingest(t, s, batch)
	if n := count(t, s, `SELECT count(*) FROM ledger_leaf`); n != int64(len(batch)) {
		t.Fatalf("%d leaves of %d", n, len(batch))
	}
	// The rest of the batch kept its documents: docOf told good from bad by itself.
	for _, good := range []int{18, 19, 20, 21, 22, 23} {
		if n := count(t, s, `SELECT count(*) FROM ledger_body WHERE sseq = $1 AND doc IS NOT NULL`, good+1); n != 1 {
			t.Errorf("%s has no document", poison[good])
		}
	}
	if n := count(t, s, `SELECT count(*) FROM ledger_body WHERE sseq > $1 AND event_id IS NULL`, len(poison)); n != int64(len(metas)) {
		t.Errorf("%d records with fields that cannot be stored", n)
	}
	page, err := s.Events(t.Context(), EventQuery{Tenant: "tenant_0", Stream: activity, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range page.Events {
		if string(e.Raw) != string(batch[i].Raw) {
			t.Errorf("event %d was stored with other bytes", e.Seq)
		}
	}
}

// TestPoisonPastOurCheck: if docOf ever errs, the batch is stored without documents.
func TestPoisonPastOurCheck(t *testing.T) {
	t.Parallel()
	s := setup(t)
	rows := []row{{Record: record(1, 1), doc: []byte(`"\u0000"`)}}
	rows[0].leaf = merkle.Leaf(rows[0].Raw)
	if err := s.ingest(t.Context(), rows); !refusesData(err) {
		t.Fatalf("Postgres took it, or refused it otherwise: %v", err)
	}
	rows[0].doc = nil
	if err := s.ingest(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// FuzzDocOf: what docOf lets through, Postgres takes.
func FuzzDocOf(f *testing.F) {
	for _, seed := range []string{`{"a":"\u0000"}`, `"\ud83d\ude00"`, `[1e400]`, `{"a":[1,2.5e-7,null,true]}`, `"\\u0000"`} {
		f.Add([]byte(seed))
	}
	pool, err := postgres.Pool(f.Context(), pgkit.Database(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pool.Close)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if doc := docOf(raw); doc != nil {
			if _, err := pool.Exec(t.Context(), `SELECT $1::jsonb`, doc); err != nil {
				t.Errorf("%q: %v", raw, err)
			}
		}
	})
}

// tripCounter counts what is sent to the server.
type tripCounter struct {
	mu    sync.Mutex
	trips int
}

func (c *tripCounter) add() { c.mu.Lock(); c.trips++; c.mu.Unlock() }

func (c *tripCounter) reset() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.trips = c.trips, 0
	return n
}

func (c *tripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.add()
	return ctx
}
func (c *tripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.add()
	return ctx
}
func (c *tripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *tripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *tripCounter) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	c.add()
	return ctx
}
func (c *tripCounter) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func TestRoundTripsDoNotGrowWithTenants(t *testing.T) {
	t.Parallel()
	trips := new(tripCounter)
	cfg, err := pgxpool.ParseConfig(pgkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = trips
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := New(pool)
	var counts []int
	from := uint64(1)
	for _, tenants := range []int{1, 500, 1, 500} {
		trips.reset()
		ingest(t, s, records(from, from+999, tenants))
		counts = append(counts, trips.reset())
		from += 1000
	}
	if slices.Max(counts) > 8 {
		t.Errorf("round trips for 1, 500, 1, 500 tenants: %v", counts)
	}
}
