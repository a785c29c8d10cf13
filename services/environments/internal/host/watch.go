package host

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/files"
)

// Bounds of watches. Files are looked at again and again, which sees what any program does, in any directory, also one that
// was just made, and costs nothing while nobody asks.
const (
	maxWatches = 16     // cursors of one attachment that are known; the oldest goes
	maxWatched = 20_000 // files
	maxChanges = 1000
	lookEvery  = 200 * time.Millisecond // at least; a look may take a tenth of the time
)

// watches are the cursors of one attachment. Its zero value has none.
type watches struct {
	mu    sync.Mutex
	known []*watched // the oldest first
}

// watched is the files as they were when a cursor was given out. It stays when it was asked with: an answer that was lost is
// asked for again.
type watched struct {
	cursor, path, glob string
	files              map[string]files.Stamp
}

func (w *watches) keep(one *watched) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.cursor = strings.ToLower(rand.Text())
	w.known = append(w.known, one)
	if len(w.known) > maxWatches {
		w.known = slices.Delete(w.known, 0, 1)
	}
	return one.cursor
}

func (w *watches) find(cursor string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.known {
		if one.cursor == cursor {
			return one
		}
	}
	return nil
}

// watch answers what changed since a cursor, as soon as something did.
func (h *Host) watch(ctx context.Context, p *place, a machine.WatchArgs) (any, error) {
	if a.Wait < 0 || a.Wait > 60 {
		return nil, problem.New(problem.Invalid, "wait_s is outside 0 to 60")
	}
	now := &watched{path: a.Path, glob: a.Glob}
	was := p.watches.find(a.Since)
	if a.Since != "" && was != nil && (was.path != a.Path || was.glob != a.Glob) {
		return nil, problem.New(problem.Invalid, "the cursor is of another path or glob; begin without since")
	}
	until := time.Now().Add(time.Duration(a.Wait) * time.Second)
	for {
		began := time.Now()
		var err error
		if now.files, err = p.files.Snapshot(ctx, a.Path, a.Glob, maxWatched); err != nil {
			return nil, err
		}
		if was == nil {
			return machine.Watched{Cursor: p.watches.keep(now), Changes: []machine.Changed{}, Resync: a.Since != ""}, nil
		}
		switch changes := changesOf(was.files, now.files); {
		case len(changes) > maxChanges:
			return machine.Watched{Cursor: p.watches.keep(now), Changes: []machine.Changed{}, Resync: true}, nil
		case len(changes) > 0:
			return machine.Watched{Cursor: p.watches.keep(now), Changes: changes}, nil
		case !time.Now().Before(until):
			return machine.Watched{Cursor: a.Since, Changes: changes}, nil
		}
		pause(ctx, min(max(lookEvery, 10*time.Since(began)), max(time.Until(until), time.Millisecond)))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// changesOf lists what is otherwise, by path.
func changesOf(was, now map[string]files.Stamp) []machine.Changed {
	out := []machine.Changed{}
	for path, stamp := range now {
		switch before, there := was[path]; {
		case !there:
			out = append(out, machine.Changed{Path: path, How: "created"})
		case before != stamp:
			out = append(out, machine.Changed{Path: path, How: "modified"})
		}
	}
	for path := range was {
		if _, there := now[path]; !there {
			out = append(out, machine.Changed{Path: path, How: "removed"})
		}
	}
	slices.SortFunc(out, func(a, b machine.Changed) int { return strings.Compare(a.Path, b.Path) })
	return out
}
