package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const (
	treesToGrow = `SELECT tenant, size, peaks FROM ledger_tree WHERE stream = $1 AND tenant = ANY($2)`
	putTrees    = `INSERT INTO ledger_tree (tenant, stream, size, peaks)
		SELECT t.tenant, $1, t.size, t.peaks FROM unnest($2::text[], $3::bigint[], $4::bytea[]) AS t (tenant, size, peaks)
		ON CONFLICT (tenant, stream) DO UPDATE SET size = EXCLUDED.size, peaks = EXCLUDED.peaks`
	treesOfTenant = `SELECT tenant, stream, size, peaks, checkpointed FROM ledger_tree WHERE tenant = $1 ORDER BY stream`
	treesDue      = `SELECT tenant, stream, size, peaks, checkpointed FROM ledger_tree WHERE size > checkpointed
		ORDER BY size - checkpointed DESC, tenant, stream LIMIT $1`
	markTree = `UPDATE ledger_tree SET checkpointed = greatest(checkpointed, $3) WHERE tenant = $1 AND stream = $2 AND size >= $3`
)

// Head is what a tree has grown to.
type Head struct {
	Tenant, Stream string
	Size           int64
	Root           merkle.Hash
	Checkpointed   int64 // size of the last saved checkpoint

	peaks []byte
}

// Heads returns the heads of the tenant's trees, one for each stream that it has events in.
func (s *Store) Heads(ctx context.Context, tenant string) (heads []Head, err error) {
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		if heads, err = collectHeads(tx.Query(ctx, treesOfTenant, tenant)); err != nil {
			return err
		}
		return setRoots(heads)
	})
	return heads, err
}

// Due returns heads that no saved checkpoint covers, of any tenant: those that have grown most first.
func (s *Store) Due(ctx context.Context, limit int) ([]Head, error) {
	heads, err := collectHeads(s.pool.Query(ctx, treesDue, bound(limit)))
	if err == nil {
		err = setRoots(heads)
	}
	return heads, failed(err, "the ledger's trees could not be read")
}

func collectHeads(rows pgx.Rows, err error) ([]Head, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Head, err error) {
		err = row.Scan(&h.Tenant, &h.Stream, &h.Size, &h.peaks, &h.Checkpointed)
		return h, err
	})
}

func setRoots(heads []Head) error {
	for i := range heads {
		f, err := unpack(heads[i].Size, heads[i].peaks)
		if err != nil {
			return err
		}
		heads[i].Root = f.Root()
	}
	return nil
}

// pack is how peaks are stored.
func pack(f *merkle.Frontier) []byte {
	var stored []byte
	for _, peak := range f.Peaks() {
		stored = append(stored, peak[:]...)
	}
	return stored
}

func unpack(size int64, stored []byte) (*merkle.Frontier, error) {
	if len(stored)%tlog.HashSize != 0 {
		return nil, problem.Wrap(errors.New("peaks cut short"), problem.Internal, "a stored tree head is damaged")
	}
	peaks := make([]merkle.Hash, 0, len(stored)/tlog.HashSize)
	for ; len(stored) > 0; stored = stored[tlog.HashSize:] {
		peaks = append(peaks, merkle.Hash(stored[:tlog.HashSize]))
	}
	return merkle.NewFrontier(size, peaks)
}
