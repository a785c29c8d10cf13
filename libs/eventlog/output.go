package eventlog

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// Printed is a message of what a call on a machine printed, as its connector stored it.
type Printed struct {
	Seq    uint64
	Header map[string][]string
	Data   []byte
}

// Output gives at most n messages of what a call printed, from a sequence of EW_OUTPUT on.
func (l *Log) Output(ctx context.Context, tenant id.Tenant, c id.Call, from uint64, n int) ([]Printed, error) {
	var out []Printed
	stream := schemas.Stream(bus.OutputStream)
	_, err := l.batch(ctx, stream, directGet{Seq: max(from, 1), Filter: bus.OutputSubject(tenant, "*", c), Batch: n}, func(m *jetstream.RawStreamMsg) bool {
		out = append(out, Printed{m.Sequence, m.Header, m.Data})
		return true
	})
	if err != nil {
		return nil, unreadable(err, stream)
	}
	return out, nil
}
