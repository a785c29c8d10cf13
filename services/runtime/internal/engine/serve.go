package engine

import (
	"errors"
	"fmt"
	"io"
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

// Serve runs one script for the parent at the other end of conn. Everything that can be made before the script is
// known is made before hello is said.
func Serve(conn *wire.Conn, hello wire.Hello) error {
	time.Local = time.UTC       // a script's dates must not depend on the machine
	debug.SetMaxStack(64 << 20) // deep nesting ends the process long before it ends the memory
	debug.SetGCPercent(400)     // most scripts end before a collection would pay
	usual := wire.Limits{}.WithDefaults()
	memoryFor(usual)
	for range rehearsals {
		if err := rehearse(usual); err != nil {
			return err
		}
	}
	m, err := newMachine(conn)
	if err != nil {
		return err
	}
	runtime.GC()
	go m.watch()
	if err := conn.Send(wire.KindHello, hello); err != nil {
		return err
	}

	if err := m.receiveRun(); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // the pool closed without a script for us
		}
		return err
	}
	if m.run.Limits.Heap != usual.Heap {
		memoryFor(m.run.Limits)
	}
	go m.listen()
	return m.finish(m.execute())
}

// memoryFor has the collector keep the heap well below the limit, where the watcher stops the script. Setting it stops
// the world, which is why it is not done on the way to a script that has the usual limit.
func memoryFor(l wire.Limits) { debug.SetMemoryLimit(l.Heap * 3 / 4) }

func (m *machine) receiveRun() error {
	_, body, err := m.conn.Receive(only(wire.KindRun, maxRun))
	if err != nil {
		return err
	}
	return wire.Decode(body, &m.run)
}

func (m *machine) receiveReply() (wire.Reply, error) {
	_, body, err := m.conn.Receive(only(wire.KindReply, maxReply))
	if err != nil {
		return wire.Reply{}, err
	}
	var reply wire.Reply
	err = wire.Decode(body, &reply)
	return reply, err
}

func only(kind wire.Kind, size int) func(wire.Kind) int {
	return func(k wire.Kind) int {
		if k == kind {
			return size
		}
		return 0
	}
}

// listen takes replies until the parent goes away, and then goes too.
func (m *machine) listen() {
	for {
		reply, err := m.receiveReply()
		if errors.Is(err, wire.ErrProtocol) {
			fmt.Fprintln(os.Stderr, "reply:", err)
			os.Exit(exitFault)
		}
		if err != nil {
			os.Exit(exitOrphan)
		}
		m.replies <- reply
	}
}

// finish says the last word.
func (m *machine) finish(fail *wire.Fail) error {
	warnings := append(m.warnings, m.unhandled()...)
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
