// Package backlog folds notices: which are not sent yet, and whose turn it is.
package backlog

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/notice"
)

// OrphanedAfter is how long a notice may be overdue, and its owner not ask its target for anything, before another
// process sends it: longer than an attempt and its record take. Of two that take it over at once both send it, under its
// one id.
const OrphanedAfter = 12 * time.Second

// maxClosed is how many closed notices are remembered, to know one that is queued again.
const maxClosed = 8192

// Notice is one that is not sent yet.
type Notice struct {
	notice.Queued
	Tenant   id.Tenant
	Seq      uint64
	At       time.Time // when it was queued
	Attempts int
	NextAt   time.Time
}

// before says whose turn it is first: that of a notice that was tried already, then that of the oldest.
func (n *Notice) before(o *Notice) bool {
	if tried := n.Attempts > 0; tried != (o.Attempts > 0) {
		return tried
	}
	return n.Seq < o.Seq
}

// Target names a target of a tenant.
type Target struct {
	Tenant id.Tenant
	Target id.Target
}

type key struct {
	tenant id.Tenant
	notice id.Notice
}

// Backlog keeps the notices of all tenants.
type Backlog struct {
	mu     sync.Mutex
	open   map[key]*Notice
	lines  map[Target]*line
	closed map[key]bool
	order  []key // of closed, the oldest first
}

// line is what waits for one target.
type line struct {
	waiting int
	asked   map[string]time.Time // when each owner was last seen to ask the target
}

// New makes an empty backlog.
func New() *Backlog {
	return &Backlog{open: map[key]*Notice{}, lines: map[Target]*line{}, closed: map[key]bool{}}
}

// Apply takes the next event of a notice. One that comes again changes nothing.
func (b *Backlog) Apply(tenant id.Tenant, seq uint64, at time.Time, ev schemas.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case notice.Queued:
		k := key{tenant, ev.Notice}
		if b.open[k] == nil && !b.closed[k] {
			b.open[k] = &Notice{Queued: ev, Tenant: tenant, Seq: seq, At: at, NextAt: at}
			of := Target{tenant, ev.Target}
			if b.lines[of] == nil {
				b.lines[of] = &line{asked: map[string]time.Time{}}
			}
			b.lines[of].waiting++
		}
	case notice.Retried:
		if n := b.open[key{tenant, ev.Notice}]; n != nil && ev.Attempt > n.Attempts {
			n.Attempts, n.NextAt, n.Owner = ev.Attempt, ev.NextAt, ev.Owner
			b.asked(Target{tenant, n.Target}, ev.Owner, at)
		}
	case notice.Sent:
		b.asked(Target{tenant, ev.Target}, ev.Owner, at)
		b.close(key{tenant, ev.Notice})
	case notice.Failed:
		b.asked(Target{tenant, ev.Target}, ev.Owner, at)
		b.close(key{tenant, ev.Notice})
	}
}

// asked notes that an owner is at work on a target's notices.
func (b *Backlog) asked(of Target, owner string, at time.Time) {
	if l := b.lines[of]; l != nil && owner != "" && at.After(l.asked[owner]) {
		l.asked[owner] = at
	}
}

func (b *Backlog) close(k key) {
	if n := b.open[k]; n != nil {
		of := Target{n.Tenant, n.Target}
		if b.lines[of].waiting--; b.lines[of].waiting == 0 {
			delete(b.lines, of)
		}
		delete(b.open, k)
	}
	if b.closed[k] {
		return
	}
	b.closed[k] = true
	if b.order = append(b.order, k); len(b.order) > maxClosed {
		delete(b.closed, b.order[0])
		b.order = b.order[1:]
	}
}

// Waiting counts a target's notices that are not sent yet.
func (b *Backlog) Waiting(of Target) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[of]; l != nil {
		return l.waiting
	}
	return 0
}

// Len counts all notices that are not sent yet.
func (b *Backlog) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// Known says whether a notice was queued before, as far back as is remembered.
func (b *Backlog) Known(tenant id.Tenant, n id.Notice) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key{tenant, n}
	return b.open[k] != nil || b.closed[k]
}

// Due gives, of each target, the one notice whose turn it is. A target that did not take its last one is left
// alone until that is due again, so that a dead one is asked once at a time, however much it was to be told. Notices of
// another owner are due when that has plainly gone.
func (b *Backlog) Due(me string, now time.Time) []Notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := map[Target]*Notice{}
	paused := map[Target]bool{}
	for _, n := range b.open {
		of := Target{n.Tenant, n.Target}
		at := n.NextAt
		if n.Owner != me {
			if seen := b.lines[of].asked[n.Owner]; seen.After(at) {
				at = seen
			}
			at = at.Add(OrphanedAfter)
		}
		if n.Attempts > 0 && now.Before(at) {
			paused[of] = true // also while its owner may be trying it again
		}
		if !now.Before(at) && (first[of] == nil || n.before(first[of])) {
			first[of] = n
		}
	}
	var due []Notice
	for of, n := range first {
		if !paused[of] {
			due = append(due, *n)
		}
	}
	slices.SortFunc(due, func(a, b Notice) int { return cmp.Compare(a.Seq, b.Seq) })
	return due
}
