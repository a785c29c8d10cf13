package environments

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of a page: pieces, and bytes of them, after which it has no other.
const (
	maxOutput = 12
	pageBytes = 256 << 10
)

// output reads what a call printed from EW_OUTPUT: also when its machine is away.
func (s *Service) output(ctx context.Context, who rpc.Caller, q ask.ReadOutput) (ask.Output, error) {
	if _, err := id.Parse[id.Visit](string(q.Call)); err == nil {
		// What a person's shell printed is kept as a call's output is.
	} else if _, err := id.Parse[id.Call](string(q.Call)); err != nil {
		return ask.Output{}, problem.Wrap(err, problem.Invalid, "call: %v", err)
	}
	list, err := s.deps.Log.Output(ctx, who.Tenant, q.Call, q.After+1, maxOutput)
	if err != nil {
		return ask.Output{}, err
	}
	out := ask.Output{Next: q.After, Pieces: []ask.OutputPiece{}}
	size := 0
	for _, m := range list {
		if size >= pageBytes {
			break
		}
		size += len(m.Data)
		header := func(name string) string {
			if v := m.Header[name]; len(v) > 0 {
				return v[0]
			}
			return ""
		}
		out.Next = m.Seq
		stream := header(connector.HeaderStream)
		if stream == connector.StreamEnd {
			var e machine.Exec
			if json.Unmarshal(m.Data, &e) == nil {
				out.End = &e
			}
			continue
		}
		piece := ask.OutputPiece{Stream: stream, Data: m.Data}
		piece.Offset, _ = strconv.ParseInt(header(connector.HeaderOffset), 10, 64) // a machine's own word; 0 when it is none
		piece.Lost, _ = strconv.ParseInt(header(connector.HeaderLost), 10, 64)
		out.Pieces = append(out.Pieces, piece)
	}
	return out, nil
}
