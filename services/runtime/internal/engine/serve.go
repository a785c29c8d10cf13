package engine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// The sizes of what the parent may send. The parent is trusted; these only keep a fault from looking like a hang.
const (
	maxRun   = 8 << 20
	maxReply = 64 << 20
)

// Serve runs scripts of one run for the parent at the other end of conn, one after the other, each in a VM of its own.
// Everything that can be made before a script is known is made before hello, or ready, is said. It returns after a
// script that may have left something behind.
func Serve(conn *wire.Conn, hello wire.Hello) error {
	time.Local = time.UTC       // a script's dates must not depend on the machine
	debug.SetMaxStack(64 << 20) // deep nesting ends the process long before it ends the memory
	debug.SetGCPercent(400)     // most scripts end before a collection would pay
	usual := wire.Limits{}.WithDefaults()
	memoryFor(usual)
	if err := rehearse(usual); err != nil {
		return err
	}
	from := inbox{runs: make(chan wire.Run), replies: make(chan wire.Reply, 1)}
	m, err := newMachine(conn, from.replies)
	if err != nil {
		return err
	}
	runtime.GC()
	if err := conn.Send(wire.KindHello, hello); err != nil {
		return err
	}
	go from.listen(conn)

	heap := usual.Heap
	for scripts := 1; ; scripts++ {
		go m.watch()
		m.run = <-from.runs
		if m.run.Limits.Heap != heap {
			memoryFor(m.run.Limits)
			heap = m.run.Limits.Heap
		}
		fail := m.execute()
		if err := m.finish(fail); err != nil {
			return err
		}
		if !m.sound(fail) {
			return nil
		}
		// Nothing but the process is kept. The collection is for the next script, whose memory is measured.
		if m, err = newMachine(conn, from.replies); err != nil {
			return err
		}
		runtime.GC()
		ready := wire.Ready{Scripts: scripts, CPUMicros: processTime().Microseconds(), MemoryBytes: heldBytes()}
		if err := conn.Send(wire.KindReady, ready); err != nil {
			return err
		}
	}
}

// memoryFor has the collector keep the heap well below the limit, where the watcher stops the script. Setting it stops
// the world, which is why it is not done on the way to a script that has the usual limit.
func memoryFor(l wire.Limits) { debug.SetMemoryLimit(l.Heap * 3 / 4) }

// sound says whether a script has come to its own end and left nothing behind: no answer is on its way to it, and the
// VM was not stopped in the middle of something.
func (m *machine) sound(fail *wire.Fail) bool {
	return m.stopped.Load() == nil && len(m.open) == 0 && (fail == nil || !wire.Spoils(fail.Code))
}

// inbox is what the parent says, sorted.
type inbox struct {
	runs    chan wire.Run
	replies chan wire.Reply
}

// listen sorts until the parent goes away, and then goes too.
func (b inbox) listen(conn *wire.Conn) {
	for {
		run, reply, err := receive(conn)
		switch {
		case errors.Is(err, wire.ErrProtocol):
			fmt.Fprintln(os.Stderr, "from the parent:", err)
			os.Exit(exitFault)
		case err != nil:
			os.Exit(exitOrphan)
		case run != nil:
			b.runs <- *run
		default:
			b.replies <- reply
		}
	}
}

// receive takes one message: a run, or a reply.
func receive(conn *wire.Conn) (run *wire.Run, reply wire.Reply, err error) {
	kind, body, err := conn.Receive(func(k wire.Kind) int {
		switch k {
		case wire.KindRun:
			return maxRun
		case wire.KindReply:
			return maxReply
		}
		return 0
	})
	switch {
	case err != nil:
	case kind == wire.KindRun:
		run = new(wire.Run)
		err = wire.Decode(body, run)
	default:
		err = wire.Decode(body, &reply)
	}
	return run, reply, err
}

// finish says the last word, unless the watcher said it.
func (m *machine) finish(fail *wire.Fail) error {
	warnings := append(m.warnings, m.unhandled()...)
	if m.said.Swap(true) {
		select {} // the watcher ends the process
	}
	m.meter.end()
	if fail != nil {
		fail.Warnings, fail.Usage = warnings, m.meter.usage()
		return m.conn.Send(wire.KindFail, fail)
	}
	return m.conn.Send(wire.KindDone, wire.Done{Value: m.value, Warnings: warnings, Usage: m.meter.usage()})
}

const (
	exitFault  = 70
	exitOrphan = 71
	exitLimit  = 72
)
