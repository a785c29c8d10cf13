package sandbox

import (
	"fmt"
	"os"
	"strconv"
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

// patientSlice is the longest turn that the kernel grants. Who has a shorter one and wakes up is served at once, where
// the turns are of one length whoever wakes up first waits for the end of the other's: a few milliseconds, and again at each
// word between a script and its host.
const patientSlice = 100 * time.Millisecond

// giveWay lowers the priority of a worker. That the kernel refuses costs others time, and nothing else.
func (w *worker) giveWay(nice int) {
	w.gaveWay = true
	_ = w.schedule(nice, patientSlice)
}

// regain takes giving way back, which the kernel lets only root do, and says whether the worker has the priority of a
// new one.
func (w *worker) regain() bool {
	if w.gaveWay && w.schedule(0, 0) == nil {
		w.gaveWay = false
	}
	return !w.gaveWay
}

// schedule sets the niceness of a worker and the length of its turns, 0 for what is usual. Its threads are the process
// group's only ones, and hand both on to those that they start. Kernels before 6.12 have turns of one length.
func (w *worker) schedule(nice int, slice time.Duration) error {
	pid := w.cmd.Process.Pid
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, nice); err != nil {
		return err
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err == nil {
			// One that has ended, or a kernel that does not take it.
			_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: int32(nice), Runtime: uint64(slice)}, 0)
		}
	}
	return nil
}
