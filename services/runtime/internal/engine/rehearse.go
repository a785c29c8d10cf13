package engine

import (
	"bytes"
	"fmt"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// rehearse runs a script of ours from its first byte to its last in a VM that is then thrown away. It faults in the
// program's pages and fills the caches of the parser, the compiler and the codec while nobody waits for them. One pays:
// more of them cost a millisecond and half a megabyte each, and no script is faster for it.
func rehearse(limits wire.Limits) error {
	conn := wire.NewConn(&bytes.Buffer{}) // what is sent is received again
	run := wire.Run{Source: "const r = await tools.a.b({x: [1, 'y']}); console.log(r); return {r}", Tools: []string{"a.b"}, Limits: limits}
	if err := conn.Send(wire.KindRun, run); err != nil {
		return err
	}
	if err := conn.Send(wire.KindReply, wire.Reply{Seq: 1, Value: []byte(`{"x":1}`)}); err != nil {
		return err
	}
	replies := make(chan wire.Reply, 1)
	m, err := newMachine(conn, replies)
	if err != nil {
		return err
	}
	received, _, err := receive(conn)
	if err != nil {
		return err
	}
	_, reply, err := receive(conn)
	if err != nil {
		return err
	}
	m.run = *received
	replies <- reply
	fail := m.execute()
	if err := m.finish(fail); err != nil {
		return err
	}
	if fail != nil {
		return fmt.Errorf("rehearsal: %w", fail)
	}
	return nil
}
