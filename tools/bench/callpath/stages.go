package callpath

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
)

// StageRow says how long a call takes from one thing that is known of it to the next: the client asks, the request is stored, its
// admission is, the provider begins, the outcome is stored, the client has the answer.
type StageRow struct {
	Sync Sync `json:"sync"`

	Requested, Admitted, Provider, Finished, Client Micros
}

// staged is how many calls are looked at.
const staged = 200

// stages makes calls one after the other, and finds their events.
func stages(ctx context.Context, h *house, s *mcp.ClientSession) (row StageRow, err error) {
	boss, err := h.connect(ctx, bus.BootUser)
	if err != nil {
		return row, err
	}
	stream, err := boss.JS.Stream(ctx, string(schemas.Activity))
	if err != nil {
		return row, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return row, err
	}
	var began, provided, ended [staged]time.Time
	for i := range staged {
		began[i] = time.Now()
		if err := read(ctx, s, "bench__read"); err != nil {
			return row, err
		}
		ended[i], provided[i] = time.Now(), time.Unix(0, h.provider.read.Load())
	}
	stored := map[string][]time.Time{}
	log, from := eventlog.New(boss), info.State.LastSeq+1
	for {
		some, err := log.Messages(ctx, schemas.Activity, from, 500)
		if err != nil {
			return row, err
		}
		if len(some) == 0 {
			break
		}
		for _, m := range some {
			kind := strings.Split(m.Subject, ".")[5]
			stored[kind] = append(stored[kind], m.StoredAt)
			from = m.Seq + 1
		}
	}
	requested, admitted, finished := stored["requested"], stored["admitted"], stored["finished"]
	if len(requested) != staged || len(admitted) != staged || len(finished) != staged {
		return row, fmt.Errorf("of %d calls, %d were requested, %d admitted and %d finished", staged, len(requested), len(admitted), len(finished))
	}
	between := func(a, b []time.Time) Micros {
		var all []time.Duration
		for i := range a {
			all = append(all, b[i].Sub(a[i]))
		}
		slices.Sort(all)
		return Micros(quantile(all, 0.5))
	}
	row.Requested, row.Admitted, row.Provider = between(began[:], requested), between(requested, admitted), between(admitted, provided[:])
	row.Finished, row.Client = between(provided[:], finished), between(finished, ended[:])
	return row, nil
}
