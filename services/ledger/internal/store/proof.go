package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// EventProof is all that somebody else needs to check that an event was recorded.
type EventProof struct {
	Event      Event
	Checkpoint Checkpoint
	Inclusion  merkle.Inclusion
}

// ProveEvent proves an event against the first checkpoint that covers it. While there is none yet, the error is
// problem.Pending.
func (s *Store) ProveEvent(ctx context.Context, tenant, eventID string) (proof EventProof, err error) {
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		if proof.Event, err = findEvent(ctx, tx, tenant, eventID); err != nil {
			return err
		}
		e := proof.Event
		proof.Checkpoint, err = scanCheckpoint(tx.QueryRow(ctx, firstCovering, tenant, e.Stream, e.TreeSeq))
		if errors.Is(err, pgx.ErrNoRows) {
			return problem.New(problem.Pending, "event %s is recorded, and the checkpoint that will cover it is not signed yet", eventID)
		}
		if err != nil {
			return err
		}
		proof.Inclusion, err = merkle.ProveInclusion(proof.Checkpoint.Size, e.TreeSeq, hashReader{ctx, tx, tenant, e.Stream})
		return err
	})
	return proof, err
}

// ProveConsistency proves that a tree of size old became the tree of size size.
func (s *Store) ProveConsistency(ctx context.Context, tenant, stream string, old, size int64) (proof merkle.Consistency, err error) {
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		proof, err = merkle.ProveConsistency(old, size, hashReader{ctx, tx, tenant, stream})
		return err
	})
	return proof, err
}
