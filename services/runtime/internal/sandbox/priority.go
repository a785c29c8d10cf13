package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// How much a script gives way to others where tenants share the pool, as the kernel counts niceness. Most scripts need
// a few milliseconds of a processor; whoever takes more, or has others of his running, takes what the rest leave. Alone,
// nobody gives way: the machine's other work would be served first for nothing.
const (
	niceOther   = 5  // beside another script of its tenant
	niceGreedy  = 10 // one that has run for greedyAfter on its own
	greedyAfter = 30 * time.Millisecond
)

// giveWay has a script that has run for a while give way, unless it waits for its host, or nobody is there to give way to.
func (s *session) giveWay() bool {
	if s.open > 0 || !s.pool.gate.isShared() {
		return false
	}
	s.worker.giveWay(niceGreedy)
	return true
}

// giveWay lowers the priority of a worker. Its threads are the process group's only ones. That the kernel refuses costs
// others time, and nothing else.
func (w *worker) giveWay(nice int) {
	w.gaveWay = true
	_ = unix.Setpriority(unix.PRIO_PGRP, w.cmd.Process.Pid, nice)
}

// regain takes giving way back, which the kernel lets only root do, and says whether the worker has the priority of a
// new one.
func (w *worker) regain() bool {
	if w.gaveWay && unix.Setpriority(unix.PRIO_PGRP, w.cmd.Process.Pid, 0) == nil {
		w.gaveWay = false
	}
	return !w.gaveWay
}
