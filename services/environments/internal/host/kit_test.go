package host_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/host"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/shimkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a machine with one attachment.
type box struct {
	*host.Host
	t      testing.TB
	home   string
	volume string
	policy string
	shim   string
	lease  connector.Lease
	calls  atomic.Int64
}

// shortDir is one that commands' user can enter, and whose sockets' paths are short enough.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ewh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newBox(t testing.TB, policy string) *box {
	t.Helper()
	home := shortDir(t)
	b := &box{t: t, home: home, volume: filepath.Join(home, "volumes", "main"), policy: policy, shim: shimkit.BuildShim(t),
		lease: connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: 1}}
	b.begin()
	t.Cleanup(func() { b.Close(); shimkit.EndAll(home) })
	if err := b.Open(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin is another life of the connector.
func (b *box) begin() {
	b.t.Helper()
	h, err := b.try()
	if err != nil {
		b.t.Fatal(err)
	}
	b.Host = h
}

func (b *box) try() (*host.Host, error) {
	p, err := localpolicy.Parse([]byte("volumes: " + filepath.Join(b.home, "volumes") + "\n" + b.policy))
	if err != nil {
		return nil, err
	}
	return host.New(b.t.Context(), host.Config{Home: b.home, Shim: b.shim, Policy: p, Log: slog.New(slog.DiscardHandler)})
}

// order makes the order of a new call.
func (b *box) order(tool string, args any) connector.Order {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	return connector.Order{Attachment: b.lease.Attachment, Epoch: b.lease.Epoch, Volume: b.lease.Volume, Call: id.Derive[id.Call](b.t.Name(), fmt.Sprint(b.calls.Add(1))),
		Tool: machine.Connection + "." + tool, Args: raw, Patience: time.Minute}
}

// do has an order carried out to its end, as the registry does.
func (b *box) do(o connector.Order) connector.Answer {
	b.t.Helper()
	for {
		if a := b.Do(b.t.Context(), o); a.State != connector.UnderWay {
			return a
		}
	}
}

// run runs a command line to its end.
func (b *box) run(a machine.ExecArgs) machine.Exec {
	b.t.Helper()
	return result[machine.Exec](b.t, b.do(b.order("exec", a)))
}

func (b *box) sh(command string) machine.Exec {
	b.t.Helper()
	return b.run(machine.ExecArgs{Command: command})
}

func result[T any](t testing.TB, a connector.Answer) (out T) {
	t.Helper()
	if a.State != connector.Done {
		t.Fatalf("the answer %+v", a)
	}
	if err := json.Unmarshal(a.Result, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
