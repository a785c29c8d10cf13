package merkle

import (
	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
)

// HashReader reads complete subtrees of one tree by tlog's stored-hash index.
type HashReader = tlog.HashReader

// Inclusion proves that leaf number Index is in the tree of Size leaves.
type Inclusion struct {
	Index int64  `json:"index"`
	Size  int64  `json:"size"`
	Path  []Hash `json:"path"`
}

// ProveInclusion makes the proof. An index outside the tree is problem.NotFound.
func ProveInclusion(size, index int64, r HashReader) (Inclusion, error) {
	if index < 0 || index >= size {
		return Inclusion{}, problem.New(problem.NotFound, "a tree of %d leaves has no leaf %d", size, index)
	}
	path, err := tlog.ProveRecord(size, index, r)
	if err != nil {
		return Inclusion{}, problem.Wrap(err, problem.Internal, "cannot prove leaf %d of %d", index, size)
	}
	return Inclusion{Index: index, Size: size, Path: path}, nil
}

// Check verifies that the leaf is in the tree with this root. Its error is problem.Denied.
func (p Inclusion) Check(leaf, root Hash) error {
	if err := tlog.CheckRecord(tlog.RecordProof(p.Path), p.Size, root, p.Index, leaf); err != nil {
		return problem.Wrap(err, problem.Denied, "the proof does not lead from leaf %d to the root", p.Index)
	}
	return nil
}

// Consistency proves that the tree of Old leaves is a prefix of the tree of New leaves: nothing was changed or
// taken away in between.
type Consistency struct {
	Old  int64  `json:"old"`
	New  int64  `json:"new"`
	Path []Hash `json:"path"`
}

// ProveConsistency makes the proof. Sizes that are not in order are problem.Invalid.
func ProveConsistency(old, size int64, r HashReader) (Consistency, error) {
	if old < 0 || old > size {
		return Consistency{}, problem.New(problem.Invalid, "a tree of %d leaves is no later state of one of %d", size, old)
	}
	if old == 0 {
		return Consistency{New: size}, nil // every tree begins with nothing
	}
	path, err := tlog.ProveTree(size, old, r)
	if err != nil {
		return Consistency{}, problem.Wrap(err, problem.Internal, "cannot prove that %d leaves became %d", old, size)
	}
	return Consistency{Old: old, New: size, Path: path}, nil
}

// Check verifies the proof against both roots. Its error is problem.Denied.
func (p Consistency) Check(oldRoot, newRoot Hash) error {
	if p.Old == 0 && p.New >= 0 && len(p.Path) == 0 && oldRoot == EmptyRoot {
		return nil
	}
	if err := tlog.CheckTree(tlog.TreeProof(p.Path), p.New, newRoot, p.Old, oldRoot); err != nil {
		return problem.Wrap(err, problem.Denied, "the proof does not lead from %d leaves to %d", p.Old, p.New)
	}
	return nil
}
