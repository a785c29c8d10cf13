package link

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/services/environments/internal/host"
)

// storeWithin is how long the bus may take to store a piece of output.
const storeWithin = 5 * time.Second

// print stores what commands print in EW_OUTPUT. It returns when a piece is stored; one whose answer was lost is stored
// again under the same number, which the stream takes once.
func (l *Link) print(nc *nats.Conn) func(context.Context, host.Printed) error {
	return func(ctx context.Context, p host.Printed) error {
		m := nats.NewMsg(bus.OutputSubject(l.identity.Tenant, l.identity.Environment, p.Call))
		m.Data = p.Data
		stream := p.Stream
		if p.End != nil {
			stream, m.Data = connector.StreamEnd, p.End
		}
		m.Header.Set(connector.HeaderStream, stream)
		m.Header.Set(connector.HeaderOffset, strconv.FormatInt(p.Offset, 10))
		if p.Lost > 0 {
			m.Header.Set(connector.HeaderLost, strconv.FormatInt(p.Lost, 10))
		}
		m.Header.Set(nats.MsgIdHdr, string(p.Call)+":"+strconv.FormatInt(p.Offset, 10)+":"+strconv.FormatInt(int64(len(p.Data))+p.Lost, 10)+":"+stream)
		ctx, cancel := context.WithTimeout(ctx, storeWithin)
		defer cancel()
		answer, err := nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return err
		}
		if stored(answer.Data) == 0 {
			return errors.New("the bus did not store the output")
		}
		return nil
	}
}

// stored reads the sequence out of the stream's answer; zero: it was not stored.
func stored(raw []byte) uint64 {
	var ack struct {
		Seq uint64 `json:"seq"`
	}
	if json.Unmarshal(raw, &ack) != nil {
		return 0
	}
	return ack.Seq
}
