package eventlog

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// Printed is a message of what a call on a machine printed, as its connector stored it.
type Printed struct {
	Seq    uint64
	Header map[string][]string
	Data   []byte
}

// KeepOutputHome notes, before a call is given to an environment, that what this one stores of it is its output. Said again
// it changes nothing.
func (l *Log) KeepOutputHome(ctx context.Context, tenant id.Tenant, env id.Environment, c id.Call) error {
	publish, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	_, err := l.conn.JS.Publish(publish, bus.OutputHomeSubject(tenant, c), []byte(env), jetstream.WithMsgID(string(tenant)+":"+string(c)+":home"))
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "whose output a call's is cannot be stored")
	}
	return nil
}

// Output gives at most n messages of what a call printed, from a sequence of EW_OUTPUT on: of the environment that the call
// was given to. What another environment stores under the call's name is not it.
func (l *Log) Output(ctx context.Context, tenant id.Tenant, c id.Call, from uint64, n int) ([]Printed, error) {
	var out []Printed
	stream := schemas.Stream(bus.OutputStream)
	var env id.Environment
	_, err := l.batch(ctx, stream, directGet{Seq: 1, Filter: bus.OutputHomeSubject(tenant, c), Batch: 1}, func(m *jetstream.RawStreamMsg) bool {
		env = id.Environment(m.Data)
		return false
	})
	if err != nil {
		return nil, unreadable(err, stream)
	}
	if env == "" {
		return nil, nil
	}
	_, err = l.batch(ctx, stream, directGet{Seq: max(from, 1), Filter: bus.OutputSubject(tenant, env, c), Batch: n}, func(m *jetstream.RawStreamMsg) bool {
		out = append(out, Printed{m.Sequence, m.Header, m.Data})
		return true
	})
	if err != nil {
		return nil, unreadable(err, stream)
	}
	return out, nil
}
