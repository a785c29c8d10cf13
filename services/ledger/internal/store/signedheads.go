package store

import (
	"bytes"
	"context"
	"errors"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// checkpoints are the signed heads of a tree under inspection, in the order of their sizes: those of the database,
// read a few at a time, and those that were kept elsewhere.
type checkpoints struct {
	in    *inspection
	page  []Checkpoint
	after int64 // size of the last one read
	done  bool

	mismatch bool  // a root was wrong: all later ones are too, and say nothing new
	unknown  int64 // signed by nobody we know
	first    int64 // size of the first of those
}

// check compares all heads of the tree's present size.
func (c *checkpoints) check(ctx context.Context) error {
	size := c.in.tree.Size()
	for {
		next, err := c.peek(ctx)
		if err != nil {
			return err
		}
		if next == nil || next.Size > size {
			break
		}
		c.page = c.page[1:]
		if head, ok := c.open(*next); ok {
			c.compare(head)
		}
	}
	for len(c.in.published) > 0 && c.in.published[0].Size <= size {
		c.compare(c.in.published[0])
		c.in.published = c.in.published[1:]
	}
	return nil
}

// peek returns the next head of the database, or nil at the end.
func (c *checkpoints) peek(ctx context.Context) (*Checkpoint, error) {
	if len(c.page) == 0 && !c.done {
		page, err := listCheckpoints(ctx, c.in.tx, c.in.head.Tenant, c.in.head.Stream, c.after, maxLimit)
		if err != nil {
			return nil, err
		}
		c.page, c.done = page, len(page) < maxLimit
		if len(page) > 0 {
			c.after = page[len(page)-1].Size
		}
	}
	if len(c.page) == 0 {
		return nil, nil
	}
	return &c.page[0], nil
}

// open verifies who signed a stored head, and that its columns say what the note says.
func (c *checkpoints) open(stored Checkpoint) (merkle.Checkpoint, bool) {
	head, err := merkle.Open(c.in.origin, stored.Note, c.in.trust.Keys...)
	switch {
	case errors.Is(err, merkle.ErrUnknownKey):
		if c.unknown == 0 {
			c.first = stored.Size
		}
		c.unknown++
		return head, false
	case err != nil:
		c.in.add(Tampered, 0, max(stored.Size-1, 0), 0, "", "the checkpoint of size %d is forged: %v", stored.Size, err)
		return head, false
	case head.Size != stored.Size || !bytes.Equal(head.Root[:], stored.Root):
		c.in.add(Tampered, 0, max(stored.Size-1, 0), 0, "", "the checkpoint of size %d is signed for another size or root", stored.Size)
		return head, false
	}
	return head, true
}

// compare holds a trusted head against the leaves so far.
func (c *checkpoints) compare(head merkle.Checkpoint) {
	switch {
	case head.Size != c.in.tree.Size():
		return // of a size that the loop has passed: only a negative one
	case head.Root == c.in.tree.Root():
		c.in.found.Checkpoints++
		c.in.found.Signed = head.Size
	case !c.mismatch:
		c.mismatch = true
		good := c.in.found.Signed
		c.in.add(Tampered, good, max(head.Size-1, good), 0, "", "the leaves do not come to the signed root of size %d", head.Size)
	}
}

// finish reports the heads that the leaves did not reach, and a tree that nobody vouches for.
func (c *checkpoints) finish(ctx context.Context) error {
	var most int64
	for {
		next, err := c.peek(ctx)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		c.page = c.page[1:]
		if _, ok := c.open(*next); ok {
			most = max(most, next.Size)
		}
	}
	for _, head := range c.in.published {
		most = max(most, head.Size)
	}
	in, size := c.in, c.in.tree.Size()
	if most > size && !in.broken {
		in.add(Incomplete, size, most-1, 0, "", "a checkpoint of size %d is signed, and there are %d leaves", most, size)
	}
	if most > size && in.broken {
		in.add(Unverifiable, size, most-1, 0, "", "signed roots up to size %d cannot be computed", most)
	}
	if c.unknown > 0 {
		in.add(Unverifiable, 0, max(c.first-1, 0), 0, "", "%d checkpoints are signed by no known key, the first of size %d", c.unknown, c.first)
	}
	if in.found.Checkpoints == 0 && size > 0 && c.unknown == 0 && !c.mismatch && most == 0 {
		in.add(Unverifiable, 0, size-1, 0, "", "no checkpoint is signed yet")
	}
	return nil
}
