package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/host"
)

// A life that ends before it knows whether a piece was stored: the next one passes the same piece on, to the byte, however
// much was printed since. A stream that takes each offset once then has all of it.
func TestPassedOnAgain(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "not stored": false} {
		b := newBox(t, "")
		e := result[machine.Exec](t, b.do(b.order("exec", machine.ExecArgs{Background: true, Command: "echo first; touch begun; while [ ! -e go ]; do sleep 0.02; done; seq 20000"})))
		taken, text := map[string]bool{}, map[int64]string{}
		take := func(p host.Printed) {
			if number := fmt.Sprint(p.Offset, p.Stream); p.End == nil && !taken[number] {
				taken[number] = true
				text[p.Offset] += string(p.Data)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := b.PassOn(ctx, func(_ context.Context, p host.Printed) error {
			if stored {
				take(p)
			}
			cancel() // the end of this life, before it hears that the piece is stored
			return errors.New("cut off")
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if err := os.WriteFile(filepath.Join(b.volume, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		b.begin()
		if err := b.Open(t.Context(), b.lease); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		if err := b.PassOn(ctx, func(_ context.Context, p host.Printed) error {
			take(p)
			if p.End != nil {
				cancel()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all := ""
		for at, ok := "", true; ok; all += at {
			at, ok = text[int64(len(all))]
		}
		end := result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: e.Exec, Wait: 30, After: int64(len(all))})))
		if end.End == nil || int64(len(all)) != end.End.Bytes {
			t.Errorf("%s: the stream has %d bytes of %+v", name, len(all), end)
		}
	}
}
