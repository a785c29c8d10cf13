package sandbox

import (
	"context"
	"encoding/json"
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

// A script that keeps a processor busy takes what others leave of it; one that waits for its calls does not.
func TestGreedyScriptGivesWay(t *testing.T) {
	p := newPool(t)
	w, err := p.take(t.Context(), true, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	for _, tenant := range []string{"t1", "t2"} { // others are there
		leave, err := p.gate.enter(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	before := niceness(t, w)
	var waiting int
	host := &fakeHost{tool: func(_ context.Context, c Call) (json.RawMessage, error) {
		time.Sleep(3 * greedyAfter) // not to wait for anything: this is what a call takes
		waiting = niceness(t, w)
		return c.Args, nil
	}}
	ended := make(chan error, 1)
	go func() {
		_, err := newSession(p, w, p.config.Limits, host).run(t.Context(), script(`await tools.a.b({}); for(;;){}`))
		ended <- err
	}()
	waitUntil(t, func() bool { return niceness(t, w) == niceGreedy })
	w.kill()
	<-ended
	if waiting != before {
		t.Errorf("while it waited its niceness was %d, before that %d", waiting, before)
	}
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
