package store

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Bounds of a page. A page ends early when its bytes or the rows looked at are many, and says where to go on.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxPageBytes = 8 << 20
	maxExamined  = 20_000
)

func bound(limit int) int {
	if limit <= 0 {
		return defaultLimit
	}
	return min(limit, maxLimit)
}

// EventQuery asks for events of one tenant in one stream. Empty filters let everything pass.
type EventQuery struct {
	Tenant string // required
	Stream string // required

	// After is the sequence to go on from, which is not in the answer: the last page's Next, or 0 to begin.
	After uint64
	// Newest begins at the end and goes backwards.
	Newest bool

	Run   string
	Noun  string
	Key   string // counts together with Noun
	Kind  string // a glob: * stands for any characters
	Actor string

	// Limit is the most events in a page. Defaults to 100; at most 1000.
	Limit int
}

// EventPage is a part of an answer. There may be more as long as More is set, even when Events is empty: the filters
// let nothing pass of what was looked at.
type EventPage struct {
	Events []Event
	Next   uint64
	More   bool
}

// Events answers a query.
func (s *Store) Events(ctx context.Context, q EventQuery) (page EventPage, err error) {
	page.Next = q.After
	err = s.read(ctx, q.Tenant, func(tx pgx.Tx) error {
		page, err = q.run(ctx, tx)
		return err
	})
	return page, err
}

// Timeline returns the events of one run in the order of the stream.
func (s *Store) Timeline(ctx context.Context, tenant, stream, run string, after uint64, limit int) (EventPage, error) {
	return s.Events(ctx, EventQuery{Tenant: tenant, Stream: stream, Run: run, After: after, Limit: limit})
}

func (q EventQuery) run(ctx context.Context, tx pgx.Tx) (page EventPage, err error) {
	page.Next = q.After
	window, args := q.window()
	filter, args := q.filter(args)
	limit := bound(q.Limit)
	args = append(args, limit)
	rows, err := tx.Query(ctx, `SELECT `+bodyColumns+` FROM (SELECT * `+window+`) b `+filter+` LIMIT $`+strconv.Itoa(len(args)), args...)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		e, err := scanEvent(rows)
		if err != nil {
			return page, err
		}
		page.Events, page.Next = append(page.Events, e), e.Seq
		if bytes += len(e.Raw); bytes > maxPageBytes || len(page.Events) == limit {
			page.More = true
			return page, nil
		}
	}
	if err := rows.Err(); err != nil {
		return page, err
	}
	// Everything in the window that passes is in the page: go on behind the window.
	var examined int
	var edge *int64
	edgeOf := `SELECT count(*), max(w.sseq) FROM (SELECT sseq ` + window + `) w`
	if q.Newest {
		edgeOf = `SELECT count(*), min(w.sseq) FROM (SELECT sseq ` + window + `) w`
	}
	windowArgs := args[:strings.Count(window, "$")]
	if err := tx.QueryRow(ctx, edgeOf, windowArgs...).Scan(&examined, &edge); err != nil {
		return page, err
	}
	if edge != nil {
		page.Next = uint64(*edge)
	}
	page.More = examined == maxExamined
	return page, nil
}

// window selects the rows that are looked at, by an index and in order. Each of its arguments occurs once.
func (q EventQuery) window() (sql string, args []any) {
	from := int64(min(q.After, math.MaxInt64))
	if q.Newest && from == 0 {
		from = math.MaxInt64
	}
	args = []any{q.Tenant, q.Stream, from}
	sql = `FROM ledger_body WHERE tenant = $1 AND stream = $2 AND sseq > $3`
	order := ` ORDER BY sseq`
	if q.Newest {
		sql = `FROM ledger_body WHERE tenant = $1 AND stream = $2 AND sseq < $3`
		order = ` ORDER BY sseq DESC`
	}
	switch {
	case q.Run != "":
		args = append(args, printable(q.Run))
		sql += ` AND run = $4`
	case q.Noun != "" && q.Key != "":
		args = append(args, printable(q.Noun), printable(q.Key))
		sql += ` AND noun = $4 AND key = $5`
	}
	return sql + order + ` LIMIT ` + strconv.Itoa(maxExamined), args
}

// filter is what the rows looked at have to pass.
func (q EventQuery) filter(args []any) (string, []any) {
	var passes []string
	add := func(condition, value string) {
		if value != "" {
			args = append(args, printable(value))
			passes = append(passes, condition+` $`+strconv.Itoa(len(args)))
		}
	}
	add(`b.noun =`, q.Noun)
	add(`b.key =`, q.Key)
	add(`b.actor =`, q.Actor)
	add(`b.kind LIKE`, likeGlob(q.Kind))
	sql := ` ORDER BY b.sseq`
	if q.Newest {
		sql += ` DESC`
	}
	if len(passes) > 0 {
		sql = `WHERE ` + strings.Join(passes, ` AND `) + sql
	}
	return sql, args
}

// likeGlob is a glob as a LIKE pattern.
var likeGlob = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace
