package up

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// seen keeps what a tail gives.
type seen struct {
	mu      sync.Mutex
	events  []client.Event
	cursors []client.Cursor
	gaps    int
}

func (s *seen) Event(e client.Event, at client.Cursor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.cursors = append(s.events, e), append(s.cursors, at)
	return nil
}

func (s *seen) Notice(problem.Detail) {}

func (s *seen) Gap(problem.Detail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps++
}

func (s *seen) kinds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		out = append(out, e.Kind)
	}
	return out
}

func (w *world) tail(after client.Cursor) (*seen, func()) {
	w.t.Helper()
	s := &seen{}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _, _ = w.Tail(ctx, client.Filter{}, after, s) }) // ends because it is told to
	return s, func() { cancel(); running.Wait() }
}

// A tail that is attached during a run shows every call, decision and approval, each stream in its order; from any
// cursor on, another tail shows exactly the rest.
func TestTail(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	position, err := w.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole, stop := w.tail(position)
	defer stop()
	w.deliver(guid)
	w.approve(w.waitingApproval())
	buskit.Eventually(t, "the tail shows the run's end", func() bool { return slices.Contains(whole.kinds(), "run.completed") })
	stop()

	kinds := whole.kinds()
	count := map[string]int{}
	for _, k := range kinds {
		count[k]++
	}
	for kind, n := range map[string]int{
		"hook.received": 1, "hook.routed": 1, "run.created": 1, "run.model_requested": 4, "run.model_completed": 4, "call.requested": 3,
		"call.held": 1, "approval.requested": 1, "approval.decided": 1, "call.admitted": 3, "call.finished": 3,
		"script.started": 1, "script.fetched": 1, "run.completed": 1,
	} {
		if count[kind] != n {
			t.Errorf("%d of %s, want %d", count[kind], kind, n)
		}
	}
	last := map[string]uint64{}
	for _, e := range whole.events {
		if e.Seq <= last[e.Stream] {
			t.Errorf("%s:%d after %d", e.Stream, e.Seq, last[e.Stream])
		}
		last[e.Stream] = e.Seq
	}
	if whole.gaps != 0 {
		t.Errorf("%d gaps", whole.gaps)
	}

	middle := len(whole.events) / 2
	rest, stopRest := w.tail(whole.cursors[middle])
	defer stopRest()
	// Each stream in its order; how the two interleave depends on how far the ledger lags behind each.
	want := places(whole.events[middle+1:])
	buskit.Eventually(t, "the rest from the middle on", func() bool {
		rest.mu.Lock()
		defer rest.mu.Unlock()
		got := places(rest.events)
		for stream, seqs := range want {
			if len(got[stream]) < len(seqs) {
				return false
			}
		}
		return true
	})
	stopRest()
	got := places(rest.events)
	for stream, seqs := range want {
		if !slices.Equal(got[stream][:len(seqs)], seqs) {
			t.Errorf("%s from %v on:\n got %v\nwant %v", stream, whole.cursors[middle], got[stream], seqs)
		}
	}
}

// places gives the sequences of events by stream.
func places(events []client.Event) map[string][]uint64 {
	out := map[string][]uint64{}
	for _, e := range events {
		out[e.Stream] = append(out[e.Stream], e.Seq)
	}
	return out
}
