package sandbox

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

func niceness(t *testing.T, w *worker) int {
	t.Helper()
	n, err := unix.Getpriority(unix.PRIO_PROCESS, w.cmd.Process.Pid)
	if err != nil {
		return -1 // it has ended
	}
	return 20 - n // as the system call has it
}

// A script that keeps a processor busy takes what others leave of it; one that waits for its calls, or has nobody beside
// it, does not.
func TestGreedyScriptGivesWay(t *testing.T) {
	p := newPool(t)
	w, err := p.take(t.Context(), true, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	before := niceness(t, w)
	s := newSession(p, w, p.config.Limits, &fakeHost{})
	if s.giveWay() || niceness(t, w) != before {
		t.Error("it gives way to nobody")
	}
	p.gate.mu.Lock()
	p.gate.shared = time.Now().Add(time.Hour) // others are there, however long this test takes
	p.gate.mu.Unlock()
	s.open = 1
	if s.giveWay() || niceness(t, w) != before {
		t.Error("it gives way while it waits for a call")
	}
	s.open = 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.run(t.Context(), script(`for(;;){}`)) // until it is killed
	}()
	waitUntil(t, func() bool { return niceness(t, w) == niceGreedy })
	w.kill()
	<-ended
}

// The worker that is spared is given to whoever has no other script, and to nobody else.
func TestOneWorkerIsSpared(t *testing.T) {
	p := &Pool{ready: make(chan *worker), spare: make(chan *worker, 1), hunger: make(chan struct{})}
	spared := &worker{}
	p.spare <- spared
	if _, err := p.take(t.Context(), false, time.Millisecond); problem.CodeOf(err) != problem.Busy {
		t.Errorf("a tenant with another script: %v", err)
	}
	if w, err := p.take(t.Context(), true, time.Minute); err != nil || w != spared {
		t.Errorf("a tenant without: %v", err)
	}
}
