package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/ledger"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
	"github.com/execwarden/execwarden/services/ledger/internal/store"
)

const actor = "service:" + string(schemas.Ledger)

// checkpointGrown signs grown trees every so often, until ctx ends.
func (s *Service) checkpointGrown(ctx context.Context) {
	for pause(ctx, s.cfg.CheckpointEvery) {
		if err := s.checkpointDue(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("checkpoint", "err", err)
		}
	}
}

func (s *Service) checkpointDue(ctx context.Context) error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	heads, err := s.store.Due(ctx, 1000)
	if err != nil {
		return err
	}
	for _, h := range heads {
		if err := s.checkpoint(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint signs a head, says it on EW_PROOFS and only then keeps it: the proof outside the database is there first,
// and a crash in between says the very same bytes again under the same id.
func (s *Service) checkpoint(ctx context.Context, h store.Head) error {
	tenant, err := id.Parse[id.Tenant](h.Tenant)
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the ledger has a tree of %q", h.Tenant)
	}
	c := merkle.Checkpoint{Origin: merkle.Origin(s.cfg.Deployment, h.Tenant, h.Stream), Size: h.Size, Root: h.Root}
	note, err := merkle.Sign(c, s.key)
	if err != nil {
		return err
	}
	_, err = s.deps.Log.Append(ctx, eventlog.Draft{
		Tenant: tenant, Key: proofKey(h.Stream), Actor: actor,
		ID: id.Derive[id.Event](h.Tenant, h.Stream, strconv.FormatInt(h.Size, 10), string(note)),
		Event: ledger.Checkpointed{Tenant: tenant, Stream: h.Stream, Size: h.Size,
			Root: base64.StdEncoding.EncodeToString(h.Root[:]), Note: string(note)},
	})
	if err != nil {
		return err
	}
	s.metrics.trees.Inc()
	return s.store.SaveCheckpoint(ctx, h.Tenant, h.Stream, c, note)
}

// proofKey is a stream's name as a subject token.
func proofKey(stream string) string { return strings.ToLower(stream) }

// published gives the newest checkpoint of each tree as the bus has it, which nobody who changes the database reaches.
func (s *Service) published(ctx context.Context, tenant id.Tenant) ([][]byte, error) {
	var notes [][]byte
	for _, stream := range streams {
		at := schemas.SubjectOf(tenant, ledger.Checkpointed{}.Kind(), proofKey(string(stream)), "")
		e, err := s.deps.Log.Last(ctx, schemas.Proofs, at.String())
		if problem.CodeOf(err) == problem.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		c, err := eventlog.Decode[ledger.Checkpointed](e)
		if err != nil {
			return nil, problem.Wrap(err, problem.Internal, "the newest checkpoint of %s cannot be read", stream)
		}
		notes = append(notes, []byte(c.Note))
	}
	return notes, nil
}

func (s *Service) trust(ctx context.Context, tenant id.Tenant) (store.Trust, error) {
	notes, err := s.published(ctx, tenant)
	return store.Trust{
		Deployment: s.cfg.Deployment, Keys: []ed25519.PublicKey{s.key.Public().(ed25519.PublicKey)}, Published: notes, Parse: read,
	}, err
}

// caughtUp waits until everything that is stored now is recorded.
func (s *Service) caughtUp(ctx context.Context) error {
	for _, stream := range streams {
		info, err := s.deps.Conn.JS.Stream(ctx, string(stream))
		if err != nil {
			return problem.Wrap(err, problem.Unavailable, "%s does not answer", stream)
		}
		last := info.CachedInfo().State.LastSeq
		for {
			cursor, err := s.store.Cursor(ctx, string(stream))
			if err != nil {
				return err
			}
			if cursor.Last >= last {
				break
			}
			if !pause(ctx, 20*time.Millisecond) {
				return problem.New(problem.Timeout, "the ledger is at %d of %s's %d events; try again", cursor.Last, stream, last)
			}
		}
	}
	return nil
}
