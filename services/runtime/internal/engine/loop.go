package engine

import (
	"fmt"
	"time"

	"github.com/dop251/goja"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// loop enters the VM for each reply and each due timer until the script has settled. A script that has not, and
// waits for nothing, can never: that is a deadlock, and it is known at once.
func (m *machine) loop() *wire.Fail {
	for !m.settled {
		if len(m.open) == 0 && m.clock.idle() {
			return &wire.Fail{Code: codeDeadlock, Message: "the script waits for a promise that nothing will settle"}
		}
		if fail := m.turn(); fail != nil {
			return fail
		}
	}
	return m.drain()
}

// drain lets calls that nobody awaited come to their end, within limits: the script is over, its timers are not run.
func (m *machine) drain() *wire.Fail {
	for _, reply := range m.early {
		delete(m.open, reply.Seq)
	}
	if len(m.open) == 0 {
		return nil
	}
	m.warnings = append(m.warnings, fmt.Sprintf("%d calls were not awaited", len(m.open)))
	m.clock.timers = nil
	over := time.NewTimer(m.run.Limits.Drain)
	defer over.Stop()
	for len(m.open) > 0 {
		select {
		case reply := <-m.replies:
			delete(m.open, reply.Seq)
		case <-over.C:
			m.warnings = append(m.warnings, fmt.Sprintf("%d calls had no result yet when the script ended", len(m.open)))
			return nil
		}
	}
	return nil
}

// turn waits for one thing to happen and lets the script know. An operation on artifacts is over before anything else
// happens: it has no place of its own in the record's order of answers, and is answered at the same one in every life so.
func (m *machine) turn() *wire.Fail {
	if m.keeping > 0 {
		reply := <-m.replies
		if w, open := m.open[reply.Seq]; open && !w.keeps {
			m.early = append(m.early, reply) // one for each open request at most
			return nil
		}
		return m.answer(reply)
	}
	if len(m.early) > 0 {
		reply := m.early[0]
		m.early = m.early[1:]
		return m.answer(reply)
	}
	wake, cancel := m.clock.wake()
	defer cancel()
	select {
	case reply := <-m.replies:
		return m.answer(reply)
	case <-wake:
		t := m.clock.pop()
		return m.enter(func() error {
			_, err := t.callback(goja.Undefined())
			return err
		})
	}
}
