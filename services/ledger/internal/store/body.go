package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const (
	bodyColumns = `b.tenant, b.stream, b.sseq, b.tseq, coalesce(b.event_id, ''), coalesce(b.type, ''), coalesce(b.noun, ''),
		coalesce(b.key, ''), coalesce(b.kind, ''), b.time, coalesce(b.actor, ''), coalesce(b.run, ''), coalesce(b.call, ''),
		b.subject, b.raw, b.stored_at, b.recorded_at`

	// An id can be there twice, when its producer said it again after the stream had forgotten it: the first counts.
	eventByID = `SELECT ` + bodyColumns + ` FROM ledger_body b WHERE b.tenant = $1 AND b.event_id = $2
		ORDER BY b.stored_at, b.stream, b.sseq LIMIT 1`

	bodiesBetween = `SELECT ` + bodyColumns + `, b.doc IS NOT NULL FROM ledger_body b
		WHERE b.tenant = $1 AND b.stream = $2 AND b.sseq > $3 AND b.sseq <= $4 ORDER BY b.sseq`

	// The cast is safe only for the rows asked for: MATERIALIZED keeps it from the others.
	docsThatDiffer = `WITH asked AS MATERIALIZED (
			SELECT b.sseq, b.raw, b.doc FROM unnest($3::bigint[]) AS want (sseq)
			JOIN ledger_body b ON b.tenant = $1 AND b.stream = $2 AND b.sseq = want.sseq
		) SELECT sseq FROM asked WHERE doc <> convert_from(raw, 'UTF8')::jsonb ORDER BY sseq`

	bodyStreams = `WITH RECURSIVE s AS (
			(SELECT stream FROM ledger_body WHERE tenant = $1 ORDER BY stream LIMIT 1)
			UNION ALL
			SELECT (SELECT l.stream FROM ledger_body l WHERE l.tenant = $1 AND l.stream > s.stream ORDER BY l.stream LIMIT 1)
			FROM s WHERE s.stream IS NOT NULL
		) SELECT stream FROM s WHERE stream IS NOT NULL`

	leavesWithBodies = `SELECT l.tseq, l.leaf_hash, l.sseq, coalesce(l.event_id, ''), coalesce(b.subject, ''), b.raw, b.stored_at
		FROM ledger_leaf l LEFT JOIN ledger_body b ON b.tenant = l.tenant AND b.stream = l.stream AND b.sseq = l.sseq
		WHERE l.tenant = $1 AND l.stream = $2 AND l.tseq >= $3 AND l.tseq < $4 ORDER BY l.tseq`
)

// Event is one recorded event.
type Event struct {
	Tenant, Stream string
	Seq            uint64 // in the stream
	TreeSeq        int64  // in the tenant's tree of that stream
	Meta
	Subject    string
	Raw        []byte
	StoredAt   time.Time // in the stream
	RecordedAt time.Time // here
}

func copyBodies(ctx context.Context, tx pgx.Tx, rows []row) error {
	columns := []string{
		"tenant", "stream", "sseq", "tseq", "event_id", "type", "noun", "key", "kind", "time", "actor", "run", "call",
		"subject", "raw", "doc", "stored_at",
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger_body"}, columns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := &rows[i]
		m := &r.Meta
		return []any{
			r.Tenant, r.Stream, int64(r.Seq), r.tseq, orNull(m.EventID), orNull(m.Type), orNull(m.Noun), orNull(m.Key),
			orNull(m.Kind), timeOrNull(m.Time), orNull(m.Actor), orNull(m.Run), orNull(m.Call),
			r.Subject, notNil(r.Raw), r.doc, r.StoredAt,
		}, nil
	}))
	return err
}

// notNil is an empty body as a value: the column is never null.
func notNil(raw []byte) []byte {
	if raw == nil {
		return []byte{}
	}
	return raw
}

func scanEvent(row pgx.Row, more ...any) (e Event, err error) {
	var at *time.Time
	into := []any{
		&e.Tenant, &e.Stream, &e.Seq, &e.TreeSeq, &e.EventID, &e.Type, &e.Noun, &e.Key, &e.Kind, &at, &e.Actor, &e.Run, &e.Call,
		&e.Subject, &e.Raw, &e.StoredAt, &e.RecordedAt,
	}
	err = row.Scan(append(into, more...)...)
	e.Time = orZero(at)
	e.StoredAt, e.RecordedAt = e.StoredAt.UTC(), e.RecordedAt.UTC()
	return e, err
}

func scanLeaf(row pgx.Row) (l Leaf, err error) {
	var hash []byte
	var stored *time.Time
	e := &l.Event
	if err := row.Scan(&l.TreeSeq, &hash, &e.Seq, &e.EventID, &e.Subject, &e.Raw, &stored); err != nil {
		return l, err
	}
	if len(hash) != tlog.HashSize {
		return l, problem.New(problem.Internal, "the hash of leaf %d is damaged: verify the ledger", l.TreeSeq)
	}
	l.Hash, e.TreeSeq, e.StoredAt = merkle.Hash(hash), l.TreeSeq, orZero(stored)
	return l, nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// Event returns one event by its id. One that is not there, or is another tenant's, is problem.NotFound.
func (s *Store) Event(ctx context.Context, tenant, id string) (e Event, err error) {
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		e, err = findEvent(ctx, tx, tenant, id)
		return err
	})
	return e, err
}

func findEvent(ctx context.Context, tx pgx.Tx, tenant, id string) (Event, error) {
	e, err := scanEvent(tx.QueryRow(ctx, eventByID, tenant, printable(id)))
	if errors.Is(err, pgx.ErrNoRows) {
		return Event{}, problem.New(problem.NotFound, "there is no event %q", id)
	}
	return e, err
}
