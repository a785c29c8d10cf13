package store

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// Trust is what a verification believes; nothing of it may come from the database.
type Trust struct {
	// Deployment is the first part of every origin.
	Deployment string
	// Keys are the deployment's public keys, old ones included.
	Keys []ed25519.PublicKey
	// Published are signed checkpoints that were kept elsewhere. They find what the database cannot show by itself:
	// the latest leaves and checkpoints cut off together.
	Published [][]byte
	// Parse reads an event as it was read when it was recorded. Without it the searchable columns are not compared.
	Parse func(subject string, raw []byte) Meta
}

// Verify checks everything that is recorded for the tenant: it hashes the bytes again, rebuilds every tree, and holds
// it against the signed heads. It reads one state of the database while the ledger goes on, and its memory does not
// grow with the ledger. An error means that it could not finish; what it found is in the report.
func (s *Store) Verify(ctx context.Context, tenant string, trust Trust) (*Report, error) {
	report := &Report{Tenant: tenant}
	err := s.read(ctx, tenant, func(tx pgx.Tx) error {
		heads, err := collectHeads(tx.Query(ctx, treesOfTenant, tenant))
		if err != nil {
			return err
		}
		streams := make(map[string]Head)
		for _, list := range []string{leafStreams, bodyStreams, checkpointStreams} {
			rows, err := tx.Query(ctx, list, tenant)
			if err != nil {
				return err
			}
			names, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			for _, name := range names {
				streams[name] = Head{Tenant: tenant, Stream: name}
			}
		}
		for _, head := range heads {
			streams[head.Stream] = head
		}
		published, err := sortPublished(tenant, trust, streams)
		if err != nil {
			return err
		}
		for _, head := range slices.SortedFunc(maps.Values(streams), func(a, b Head) int { return cmp.Compare(a.Stream, b.Stream) }) {
			in := &inspection{
				tx: tx, trust: trust, head: head, report: report, published: published[head.Stream],
				origin: merkle.Origin(trust.Deployment, tenant, head.Stream), found: StreamReport{Stream: head.Stream},
			}
			if err := in.run(ctx); err != nil {
				return err
			}
			report.Streams = append(report.Streams, in.found)
		}
		return nil
	})
	if err == nil && len(report.Streams) == 0 && report.ProblemCount == 0 {
		report.add(Problem{Verdict: Unverifiable, What: "nothing is recorded for this tenant"})
	}
	return report, err
}

// sortPublished opens the checkpoints that were kept elsewhere. A stream that only they know becomes one to inspect:
// all of it is missing.
func sortPublished(tenant string, trust Trust, streams map[string]Head) (map[string][]merkle.Checkpoint, error) {
	prefix := merkle.Origin(trust.Deployment, tenant, "")
	sorted := make(map[string][]merkle.Checkpoint)
	for _, note := range trust.Published {
		stream, ours := merkle.StreamOf(prefix, note)
		if !ours {
			continue // of another tenant: a file may hold them all
		}
		c, err := merkle.Open(prefix+stream, note, trust.Keys...)
		if err != nil {
			// It did not come from the database, so it accuses whoever kept it, not the ledger.
			return nil, problem.Wrap(err, problem.Invalid, "a published checkpoint of %s%s cannot be trusted", prefix, stream)
		}
		sorted[stream] = append(sorted[stream], c)
		if _, known := streams[stream]; !known {
			streams[stream] = Head{Tenant: tenant, Stream: stream}
		}
	}
	for _, list := range sorted {
		slices.SortFunc(list, func(a, b merkle.Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	}
	return sorted, nil
}
