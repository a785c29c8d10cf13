package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/problem"
)

const (
	// The first of two writers that find no cursor makes it; the second then finds it locked.
	makeCursor = `INSERT INTO ledger_cursor (stream, incarnation, first_seq, last_seq) VALUES ($1, $2, $3::bigint, $3::bigint - 1)
		ON CONFLICT DO NOTHING`
	lockCursor = `SELECT incarnation, last_seq FROM ledger_cursor WHERE stream = $1 FOR UPDATE`
	moveCursor = `UPDATE ledger_cursor SET last_seq = $3 WHERE stream = $1 AND last_seq = $2`
	readCursor = `SELECT stream, incarnation, first_seq, last_seq FROM ledger_cursor WHERE stream = $1`
)

// Cursor says how far a stream has been taken in.
type Cursor struct {
	Stream      string
	Incarnation string
	First       uint64 // where the ledger began
	Last        uint64 // the next one to come is Last+1
}

// Cursor returns where the stream stands. A stream that was never heard has the zero Incarnation and Last.
func (s *Store) Cursor(ctx context.Context, stream string) (Cursor, error) {
	c := Cursor{Stream: stream}
	err := s.pool.QueryRow(ctx, readCursor, stream).Scan(&c.Stream, &c.Incarnation, &c.First, &c.Last)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, nil
	}
	return c, failed(err, "the ledger's cursor could not be read")
}

// GapError says that events are missing between the ledger and what the stream delivers. The ledger does not skip:
// whether they are lost is for a person to decide. Its code is problem.Conflict.
type GapError struct {
	Stream    string
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s: the ledger needs sequence %d and got %d", e.Stream, e.Want, e.Got)
}

// IncarnationError says that the stream is not the one that the cursor belongs to: it was deleted and made anew, so
// its sequences count other events. Its code is problem.Conflict.
type IncarnationError struct {
	Stream    string
	Want, Got string
}

func (e *IncarnationError) Error() string {
	return fmt.Sprintf("stream %s: the ledger follows incarnation %q and this is %q", e.Stream, e.Want, e.Got)
}

func gap(stream string, want, got uint64) error {
	return problem.Wrap(&GapError{stream, want, got}, problem.Conflict, "events of stream %s are missing: the ledger needs sequence %d and got %d", stream, want, got)
}
