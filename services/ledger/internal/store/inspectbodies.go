package store

import (
	"bytes"
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// orphanBody is a body without its leaf. Its bytes can stand in for a leaf that was deleted.
type orphanBody struct {
	tseq int64
	hash merkle.Hash
}

// readBodies reads the bodies that go with the leaves at hand, and holds each against its leaf.
func (in *inspection) readBodies(ctx context.Context, last bool) error {
	in.bodies, in.orphans, in.authors = make([]bool, len(in.page)), nil, nil
	leafOf, taken := make(map[int64]int, len(in.page)), make(map[int64]bool, len(in.page))
	upTo := in.lastSeq
	for i, l := range in.page {
		taken[l.tseq] = true
		if _, twice := leafOf[l.sseq]; twice || l.sseq <= in.lastSeq {
			in.add(Tampered, l.tseq, l.tseq, l.sseq, l.eventID, "its stream sequence is out of order")
		}
		leafOf[l.sseq] = i
		upTo = max(upTo, l.sseq)
	}
	if last {
		upTo = math.MaxInt64 // bodies after the last leaf belong to none
	}
	rows, err := in.tx.Query(ctx, bodiesBetween, in.head.Tenant, in.head.Stream, in.lastSeq, upTo)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var hasDoc bool
		e, err := scanEvent(rows, &hasDoc)
		if err != nil {
			return err
		}
		in.found.Bodies++
		if e.Meta == (Meta{}) {
			in.found.Undecoded++
		}
		i, known := leafOf[int64(e.Seq)]
		switch {
		case known:
		case taken[e.TreeSeq] || e.TreeSeq < in.tree.Size() || e.TreeSeq >= in.head.Size:
			in.add(Tampered, e.TreeSeq, e.TreeSeq, int64(e.Seq), e.EventID, "the body is none of the tree's")
			continue
		default:
			in.add(Incomplete, e.TreeSeq, e.TreeSeq, int64(e.Seq), e.EventID, "the body's leaf row is missing")
			if len(in.orphans) < inspectedAtOnce {
				in.orphans = append(in.orphans, orphanBody{e.TreeSeq, merkle.Leaf(e.Raw)})
			}
			continue
		}
		in.bodies[i] = true
		in.compareBody(in.page[i], e, hasDoc)
	}
	in.lastSeq = upTo
	if err := rows.Err(); err != nil {
		return err
	}
	for i, l := range in.page {
		if !in.bodies[i] {
			in.add(Incomplete, l.tseq, l.tseq, l.sseq, l.eventID, "the leaf's body is missing")
		}
	}
	return nil
}

// compareBody holds a body against its leaf, and its columns against its bytes.
func (in *inspection) compareBody(l leafRow, e Event, hasDoc bool) {
	differs := func(what string, args ...any) { in.add(Tampered, l.tseq, l.tseq, l.sseq, l.eventID, what, args...) }
	if hash := merkle.Leaf(e.Raw); !bytes.Equal(hash[:], l.hash) {
		differs("the raw bytes do not hash to the leaf")
		return // what the columns should say cannot be known
	}
	if e.TreeSeq != l.tseq {
		differs("the body says it is leaf %d", e.TreeSeq)
	}
	if e.EventID != l.eventID {
		differs("the leaf's event id is %q and the body's is %q", l.eventID, e.EventID)
	}
	if hasDoc {
		if docOf(e.Raw) == nil {
			differs("doc is set, and the raw bytes are nothing that it could hold")
		} else {
			in.authors = append(in.authors, l.sseq)
		}
	}
	if in.trust.Parse == nil {
		return
	}
	want := in.trust.Parse(e.Subject, e.Raw).storable()
	for _, field := range []struct{ name, got, want string }{
		{"event_id", e.EventID, want.EventID},
		{"type", e.Type, want.Type},
		{"noun", e.Noun, want.Noun},
		{"key", e.Key, want.Key},
		{"kind", e.Kind, want.Kind},
		{"actor", e.Actor, want.Actor},
		{"run", e.Run, want.Run},
		{"call", e.Call, want.Call},
	} {
		if field.got != field.want {
			differs("%s is %q, and the raw bytes say %q", field.name, field.got, field.want)
		}
	}
	if !e.Time.Equal(want.Time) {
		differs("time is %s, and the raw bytes say %s", e.Time, want.Time)
	}
}

// compareDocs holds the documents against the bytes, which have been found right. Postgres compares, as it is the
// authority on what jsonb keeps.
func (in *inspection) compareDocs(ctx context.Context) error {
	if len(in.authors) == 0 {
		return nil
	}
	rows, err := in.tx.Query(ctx, docsThatDiffer, in.head.Tenant, in.head.Stream, in.authors)
	if err != nil {
		return err
	}
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		for _, l := range in.page {
			if l.sseq == seq {
				in.add(Tampered, l.tseq, l.tseq, l.sseq, l.eventID, "doc differs from the raw bytes")
			}
		}
	}
	return nil
}
