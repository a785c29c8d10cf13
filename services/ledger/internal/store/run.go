package store

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	putRuns = `INSERT INTO ledger_run AS old (tenant, stream, run, first_seq, last_seq, events, actor, state, first_time, last_time)
		SELECT r.tenant, $1, r.run, r.first_seq, r.last_seq, r.events, r.actor, r.state, r.first_time, r.last_time
		FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[], $10::timestamptz[])
			AS r (tenant, run, first_seq, last_seq, events, actor, state, first_time, last_time)
		ON CONFLICT (tenant, stream, run) DO UPDATE SET
			last_seq = EXCLUDED.last_seq,
			events = old.events + EXCLUDED.events,
			state = coalesce(EXCLUDED.state, old.state),
			first_time = coalesce(old.first_time, EXCLUDED.first_time),
			last_time = coalesce(EXCLUDED.last_time, old.last_time)`
	newestRuns = `SELECT tenant, stream, run, first_seq, last_seq, events, coalesce(actor, ''), coalesce(state, ''), first_time, last_time
		FROM ledger_run WHERE tenant = $1 AND stream = $2 AND first_seq < $3 ORDER BY first_seq DESC LIMIT $4`
)

// Run sums up the events of one run.
type Run struct {
	Tenant, Stream, Run string
	FirstSeq, LastSeq   uint64
	Events              int64
	Actor               string // of the first event
	State               string // kind of the last event about the run itself
	FirstTime, LastTime time.Time
}

// RunPage is a part of a list of runs. Next continues it; 0 means that this was all.
type RunPage struct {
	Runs []Run
	Next uint64
}

// Runs lists the tenant's runs in a stream, the newest first. before is the last page's Next, or 0.
func (s *Store) Runs(ctx context.Context, tenant, stream string, before uint64, limit int) (page RunPage, err error) {
	cursor, limit := int64(math.MaxInt64), bound(limit)
	if before > 0 && before <= math.MaxInt64 {
		cursor = int64(before)
	}
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, newestRuns, tenant, stream, cursor, limit)
		if err != nil {
			return err
		}
		page.Runs, err = pgx.CollectRows(rows, scanRun)
		return err
	})
	if len(page.Runs) == limit {
		page.Next = page.Runs[limit-1].FirstSeq
	}
	return page, err
}

func scanRun(row pgx.CollectableRow) (r Run, err error) {
	var first, last *time.Time
	err = row.Scan(&r.Tenant, &r.Stream, &r.Run, &r.FirstSeq, &r.LastSeq, &r.Events, &r.Actor, &r.State, &first, &last)
	r.FirstTime, r.LastTime = orZero(first), orZero(last)
	return r, err
}

// runTally sums up a batch, so that each run is written once for it.
type runTally struct {
	index                  map[[2]string]int
	tenants, runs          []string
	firsts, lasts, events  []int64
	actors, states         []*string
	firstTimes, finalTimes []*time.Time
}

func tallyRuns(rows []row) *runTally {
	t := &runTally{index: make(map[[2]string]int)}
	for _, r := range rows {
		if r.Meta.Run == "" {
			continue
		}
		i, known := t.index[[2]string{r.Tenant, r.Meta.Run}]
		if !known {
			i = len(t.runs)
			t.index[[2]string{r.Tenant, r.Meta.Run}] = i
			t.tenants, t.runs = append(t.tenants, r.Tenant), append(t.runs, r.Meta.Run)
			t.firsts, t.lasts, t.events = append(t.firsts, int64(r.Seq)), append(t.lasts, 0), append(t.events, 0)
			t.actors, t.states = append(t.actors, orNull(r.Meta.Actor)), append(t.states, nil)
			t.firstTimes, t.finalTimes = append(t.firstTimes, timeOrNull(r.Meta.Time)), append(t.finalTimes, nil)
		}
		t.lasts[i] = int64(r.Seq)
		t.events[i]++
		t.finalTimes[i] = timeOrNull(r.Meta.Time)
		if r.Meta.Noun == "run" {
			t.states[i] = orNull(r.Meta.Kind)
		}
	}
	return t
}

func (t *runTally) queue(b *pgx.Batch, stream string) {
	if len(t.runs) > 0 {
		b.Queue(putRuns, stream, t.tenants, t.runs, t.firsts, t.lasts, t.events, t.actors, t.states, t.firstTimes, t.finalTimes)
	}
}
