package engine

import (
	"os"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

const (
	watchEvery = 2 * time.Millisecond
	// watchGrace is the processor time that an interrupted script may go on for: native code, such as a regular
	// expression or JSON, does not look for interrupts.
	watchGrace = 250 * time.Millisecond
)

// watch stops the script at its limits while the VM is entered, sleeps otherwise, and ends with the script. What does not stop is ended with
// the process; what this cannot see, such as one huge allocation, the kernel's limits end.
func (m *machine) watch() {
	for range m.meter.wake {
		for m.meter.busy.Load() {
			time.Sleep(watchEvery)
			if m.said.Load() {
				return // what is measured from here on is not the script's
			}
			limits := m.run.Limits
			cpu, heap := m.meter.cpu(), heapBytes()
			m.meter.peak.Store(max(m.meter.peak.Load(), heap))
			switch {
			case cpu > limits.CPU+watchGrace:
				m.abandon(codeCPU)
			case heap > limits.Heap*5/4:
				m.abandon(codeMemory)
			case cpu > limits.CPU:
				m.stop(codeCPU)
			case heap > limits.Heap:
				m.stop(codeMemory)
			}
		}
	}
}

// abandon says the last word from beside the VM and ends the process.
func (m *machine) abandon(code string) {
	if m.said.Swap(true) {
		return // it came to its end in this instant
	}
	fail := limitReached(code, m.run.Limits)
	fail.Usage = m.meter.usage()
	_ = m.conn.Send(wire.KindFail, fail) // if it fails the parent reads the exit code's cause from the limits
	os.Exit(exitLimit)
}

// meter measures the script and knows whether the VM is entered.
type meter struct {
	busy *atomic.Bool
	peak *atomic.Int64
	wake chan struct{}
	base *atomic.Int64 // the process's processor time before the first entry
}

func newMeter() meter {
	return meter{busy: new(atomic.Bool), peak: new(atomic.Int64), wake: make(chan struct{}, 1), base: new(atomic.Int64)}
}

func (m meter) enter() {
	m.base.CompareAndSwap(0, int64(processTime()))
	m.busy.Store(true)
	select {
	case m.wake <- struct{}{}:
	default: // the watcher has yet to see the last one
	}
}

// end lets the watcher go. The VM is not entered again.
func (m meter) end() { close(m.wake) }

func (m meter) leave() { m.busy.Store(false) }

func (m meter) cpu() time.Duration { return processTime() - time.Duration(m.base.Load()) }

func (m meter) usage() wire.Usage {
	return wire.Usage{CPUMicros: m.cpu().Microseconds(), HeapBytes: max(m.peak.Load(), heapBytes())}
}

func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapBytes is what the heap holds, garbage included. Reading it does not stop the world.
func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// heldBytes is the memory that the process has from the kernel and has not given back.
func heldBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}
