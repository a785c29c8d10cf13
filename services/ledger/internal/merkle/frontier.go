package merkle

import (
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
)

// Hash is the hash of a leaf, of a subtree, or of a tree.
type Hash = tlog.Hash

// Leaf is the hash of an event's stored bytes.
func Leaf(raw []byte) Hash { return tlog.RecordHash(raw) }

// EmptyRoot is the root of a tree without leaves: the hash of nothing.
var EmptyRoot = func() Hash {
	root, err := tlog.TreeHash(0, nil)
	if err != nil {
		panic(err) // it reads no hashes, so none can be missing
	}
	return root
}()

// Node is a complete subtree: it covers the leaves [Index<<Level, (Index+1)<<Level).
type Node struct {
	Level int
	Index int64
	Hash  Hash
}

// Frontier is the right edge of a tree: all that is needed to append to it and to know its root. The zero value is
// the empty tree.
type Frontier struct {
	size int64

	// peaks are the roots of the largest complete subtrees, from left to right: one for each bit set in size.
	peaks []Hash
}

// NewFrontier returns the edge of a tree whose size and peaks were stored. Peaks of a wrong count are a fault of
// the storage.
func NewFrontier(size int64, peaks []Hash) (*Frontier, error) {
	if size < 0 || bits.OnesCount64(uint64(size)) != len(peaks) {
		return nil, problem.New(problem.Internal, "a tree of size %d cannot have %d peaks", size, len(peaks))
	}
	return &Frontier{size: size, peaks: slices.Clone(peaks)}, nil
}

// Size is the number of leaves.
func (f *Frontier) Size() int64 { return f.size }

// Peaks are what NewFrontier needs besides the size.
func (f *Frontier) Peaks() []Hash { return slices.Clone(f.peaks) }

// Append adds a leaf and appends to nodes the subtrees that it completes, from the leaf itself upwards.
func (f *Frontier) Append(leaf Hash, nodes []Node) []Node {
	node := Node{Level: 0, Index: f.size, Hash: leaf}
	nodes = append(nodes, node)
	// As in a binary counter, each trailing one bit of the size is a peak that the new subtree joins.
	for size := f.size; size&1 == 1; size >>= 1 {
		last := len(f.peaks) - 1
		node = Node{Level: node.Level + 1, Index: node.Index >> 1, Hash: tlog.NodeHash(f.peaks[last], node.Hash)}
		f.peaks = f.peaks[:last]
		nodes = append(nodes, node)
	}
	f.peaks = append(f.peaks, node.Hash)
	f.size++
	return nodes
}

// Root is the hash of the whole tree.
func (f *Frontier) Root() Hash {
	if f.size == 0 {
		return EmptyRoot
	}
	root := f.peaks[len(f.peaks)-1]
	for _, peak := range slices.Backward(f.peaks[:len(f.peaks)-1]) {
		root = tlog.NodeHash(peak, root)
	}
	return root
}

// Fold returns the root of a complete subtree from the hashes of its parts, a power of two of them, left to right.
func Fold(parts []Hash) (Hash, error) {
	if bits.OnesCount(uint(len(parts))) != 1 {
		return Hash{}, problem.New(problem.Internal, "%d hashes are no complete subtree", len(parts))
	}
	level := slices.Clone(parts)
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = tlog.NodeHash(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0], nil
}
