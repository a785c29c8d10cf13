package store

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// inspectedAtOnce is the number of leaves held in memory. Their bodies are read one at a time.
const inspectedAtOnce = 1000

// inspection goes through one tree from its first leaf to its last.
type inspection struct {
	tx        pgx.Tx
	trust     Trust
	origin    string
	head      Head // as stored; without a size if there is none
	published []merkle.Checkpoint
	report    *Report
	found     StreamReport

	tree    merkle.Frontier // what the leaves so far come to
	broken  bool            // a leaf is missing: no root can be computed from there on
	signed  checkpoints
	lastSeq int64        // stream sequence up to where bodies were read
	page    []leafRow    // the leaves at hand
	bodies  []bool       // which of them have a body
	orphans []orphanBody // bodies of this page that no leaf goes with
	authors []int64      // sequences whose bytes are what was recorded, and whose document is to be compared
}

func (in *inspection) run(ctx context.Context) error {
	in.signed = checkpoints{in: in, after: math.MinInt64}
	for from := int64(math.MinInt64); ; {
		rows, err := in.tx.Query(ctx, leavesFrom, in.head.Tenant, in.head.Stream, from, inspectedAtOnce)
		if err != nil {
			return err
		}
		in.page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leafRow, err error) {
			err = row.Scan(&l.tseq, &l.eventID, &l.sseq, &l.hash)
			return l, err
		})
		if err != nil {
			return err
		}
		last := len(in.page) < inspectedAtOnce
		if err := in.readBodies(ctx, last); err != nil {
			return err
		}
		if err := in.compareDocs(ctx); err != nil {
			return err
		}
		nodes, err := in.growTree(ctx)
		if err != nil {
			return err
		}
		if last && !in.broken {
			if nodes, err = in.fill(ctx, in.head.Size, nodes); err != nil {
				return err
			}
		}
		if err := in.compareNodes(ctx, nodes); err != nil {
			return err
		}
		if last {
			break
		}
		from = in.page[len(in.page)-1].tseq + 1
	}
	in.found.Size, in.found.Root = in.tree.Size(), in.tree.Root()
	in.compareHead()
	return in.signed.finish(ctx)
}

func (in *inspection) add(verdict Verdict, first, last int64, seq int64, eventID, what string, args ...any) {
	in.report.add(Problem{
		Verdict: verdict, Stream: in.head.Stream, First: first, Last: last, Seq: uint64(max(seq, 0)), EventID: eventID,
		What: fmt.Sprintf(what, args...),
	})
}

// growTree appends the leaves at hand, and checks the signed heads that it comes by.
func (in *inspection) growTree(ctx context.Context) (nodes []merkle.Node, err error) {
	if err := in.signed.check(ctx); err != nil { // of the empty tree
		return nil, err
	}
	for _, l := range in.page {
		in.found.Leaves++
		if !in.broken && l.tseq > in.tree.Size() {
			if nodes, err = in.fill(ctx, l.tseq, nodes); err != nil {
				return nil, err
			}
			if missing := in.tree.Size(); missing < l.tseq {
				in.add(Incomplete, missing, l.tseq-1, 0, "", "leaf and body are missing: later roots cannot be computed")
				in.broken = true
			}
		}
		switch {
		case in.broken:
			continue
		case l.tseq != in.tree.Size():
			in.add(Tampered, l.tseq, l.tseq, l.sseq, l.eventID, "there is no such place in the tree")
			continue
		case len(l.hash) != len(merkle.Hash{}):
			in.add(Tampered, l.tseq, l.tseq, l.sseq, l.eventID, "the leaf's hash is damaged")
			in.broken = true
			continue
		}
		nodes = in.tree.Append(merkle.Hash(l.hash), nodes)
		if err := in.signed.check(ctx); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// fill closes a gap before leaf upTo with bodies whose leaf rows are missing, as far as they go: if signed roots still
// come out right, nothing but rows is lost.
func (in *inspection) fill(ctx context.Context, upTo int64, nodes []merkle.Node) ([]merkle.Node, error) {
	for _, o := range in.orphans {
		if o.tseq == in.tree.Size() && o.tseq < upTo {
			nodes = in.tree.Append(o.hash, nodes)
			if err := in.signed.check(ctx); err != nil {
				return nil, err
			}
		}
	}
	return nodes, nil
}
