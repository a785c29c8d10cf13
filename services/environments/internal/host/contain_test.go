package host

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/dockerkit"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/shimkit"
)

// yard is a machine whose calls may begin containers of the test's image.
type yard struct {
	*Host
	t     *testing.T
	api   *client.Client
	image string
	lease connector.Lease
	calls int
}

func newYard(t *testing.T, limits string) *yard {
	t.Helper()
	y := &yard{t: t, api: dockerkit.Engine(t), lease: connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: 1}}
	y.image = dockerkit.Image(t, y.api)
	home, err := os.MkdirTemp("", "ewy")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	p, err := localpolicy.Parse(fmt.Appendf(nil, "volumes: %s/volumes\ncontainers: {images: [%q], %s memory: 64m, cpus: 0.5, pids: 32}\n", home, y.image, limits))
	if err != nil {
		t.Fatal(err)
	}
	if y.Host, err = New(t.Context(), Config{Home: home, Name: "yard-" + filepath.Base(home), Shim: shimkit.BuildShim(t), Driver: environment.Host, Policy: p, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { y.Close(); shimkit.EndAll(home); dockerkit.RemoveAll(t, y.api, home) })
	if err := y.Open(t.Context(), y.lease); err != nil {
		t.Fatal(err)
	}
	return y
}

func (y *yard) order(tool string, args any) connector.Order {
	y.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		y.t.Fatal(err)
	}
	y.calls++
	return connector.Order{Attachment: y.lease.Attachment, Epoch: 1, Volume: "main", Call: id.Derive[id.Call](y.t.Name(), fmt.Sprint(y.calls), time.Now().String()), Tool: "machine." + tool, Args: raw, Patience: time.Minute}
}

func (y *yard) do(o connector.Order) connector.Answer {
	y.t.Helper()
	for {
		if a := y.Do(y.t.Context(), o); a.State != connector.UnderWay {
			return a
		}
	}
}

func (y *yard) runs(args machine.ContainersRunArgs) (out machine.Container) {
	y.t.Helper()
	args.Image = y.image
	a := y.do(y.order("containers_run", args))
	if a.State != connector.Done || a.ToolError {
		y.t.Fatalf("the answer %s %s %s", a.State, a.Result, a.Message)
	}
	if err := json.Unmarshal(a.Result, &out); err != nil {
		y.t.Fatal(err)
	}
	return out
}

func (y *yard) refused(tool string, args any, want string) {
	y.t.Helper()
	if a := y.do(y.order(tool, args)); a.State == connector.Done && !a.ToolError || !strings.Contains(string(a.Result)+a.Message, want) {
		y.t.Errorf("%s %+v: %s %s %s, want %q", tool, args, a.State, a.Result, a.Message, want)
	}
}

func (y *yard) left() []string { return dockerkit.Containers(y.t, y.api, y.cfg.Home) }

// A container of a call has the volume at most, as the user whose it is, and no right and no network; it is done once and removed.
func TestContainer(t *testing.T) {
	y := newYard(t, "most: 2,")
	o := y.order("containers_run", machine.ContainersRunArgs{Image: y.image, Volume: "/work", Cwd: "/work", Env: map[string]string{"WHO": "me"},
		Argv: []string{"/bin/sh", "-c", "echo $WHO $MARK >>made; id -u; grep CapEff /proc/self/status; grep -c : /proc/net/dev; ls /home /root 2>&1; echo oops >&2; exit 4"}})
	first, again := y.do(o), y.do(o)
	var c machine.Container
	if err := json.Unmarshal(first.Result, &c); err != nil || string(first.Result) != string(again.Result) {
		t.Fatalf("%s, and again %s: %v", first.Result, again.Result, err)
	}
	uid, _ := y.cfg.Policy.Commands()
	if uid == 0 {
		uid = os.Geteuid()
	}
	if c.Code == nil || *c.Code != 4 || c.Stderr != "oops\n" || !strings.HasPrefix(c.Stdout, fmt.Sprintf("%d\nCapEff:\t0000000000000000\n1\n", uid)) {
		t.Errorf("it ended as %+v", c)
	}
	if raw, err := os.ReadFile(filepath.Join(y.cfg.Home, "volumes", "main", "made")); err != nil || string(raw) != "me "+dockerkit.Marker+"\n" {
		t.Errorf("it made %q: %v", raw, err)
	}
	if out := y.runs(machine.ContainersRunArgs{Volume: "/work", ReadOnly: true, Argv: []string{"/bin/touch", "/work/x"}}); *out.Code == 0 {
		t.Error("a volume that may only be read is written")
	}
	if out := y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sh", "-c", "while :; do echo y; done | head -c 3000000; ls /work"}}); !out.Clipped || len(out.Stdout) != containerShown || *out.Code == 0 {
		t.Errorf("%d bytes are shown, %+v", len(out.Stdout), out.Code)
	}
	if out := y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sleep", "1000"}, Timeout: 1}); out.Reason != "timeout" {
		t.Errorf("beyond its time %+v", out)
	}
	if left := y.left(); len(left) > 0 {
		t.Errorf("left is %v", left)
	}
}

func TestContainersRefused(t *testing.T) {
	y := newYard(t, "most: 1,")
	for want, args := range map[string]machine.ContainersRunArgs{
		"rule containers.images":   {Image: "alpine"},
		"no absolute path below /": {Image: y.image, Volume: "../x"},
		"below / in the container": {Image: y.image, Volume: "/"},
		"no absolute path in the":  {Image: y.image, Cwd: "x"},
		"timeout_s":                {Image: y.image, Timeout: 100000},
		"may not be set":           {Image: y.image, Env: map[string]string{"LD_PRELOAD": "x"}},
		"is of the volume":         {Image: y.image, ReadOnly: true},
		"cannot be started":        {Image: y.image, Argv: []string{"/no-such"}},
	} {
		y.refused("containers_run", args, want)
	}
	for _, unknown := range []string{`{"image":"x","privileged":true}`, `{"image":"x","mounts":["/etc"]}`, `{"image":"x","network":"host"}`} {
		y.refused("containers_run", json.RawMessage(unknown), "unknown field")
	}
	c := y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sleep", "1000"}, Background: true})
	y.refused("containers_run", machine.ContainersRunArgs{Image: y.image}, "rule containers.most")
	for _, name := range []string{"", "x", "../x", "execwarden-" + string(y.lease.Attachment), "execwarden-" + string(id.New[id.Call]())} {
		y.refused("containers_logs", machine.ContainersLogsArgs{Container: name}, "no container")
		y.refused("containers_stop", machine.ContainersStopArgs{Container: name}, "no container")
	}
	// Another attachment's is not there.
	other := connector.Lease{Attachment: id.New[id.Attachment](), Volume: "other", Epoch: 1}
	if err := y.Open(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	mine := y.lease
	y.lease = other
	y.refused("containers_stop", machine.ContainersStopArgs{Container: c.Container}, "no container")
	y.lease = mine
}

// One in the background is looked at, ends with its time, and with its attachment.
func TestContainerInBackground(t *testing.T) {
	y := newYard(t, "most: 4,")
	c := y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sh", "-c", "echo up; sleep 1000"}, Background: true})
	if c.State != "running" {
		t.Fatalf("it is %+v", c)
	}
	buskit.Eventually(t, "its output is there", func() bool {
		return strings.Contains(string(y.do(y.order("containers_logs", machine.ContainersLogsArgs{Container: c.Container})).Result), `"stdout":"up\n"`)
	})
	if list := string(y.do(y.order("containers_list", struct{}{})).Result); !strings.Contains(list, c.Container) {
		t.Errorf("the list %s", list)
	}
	if a := y.do(y.order("containers_stop", machine.ContainersStopArgs{Container: c.Container})); !strings.Contains(string(a.Result), "up") || len(y.left()) != 0 {
		t.Errorf("stopped %s, left is %v", a.Result, y.left())
	}
	y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sleep", "1000"}, Background: true, Timeout: 1})
	buskit.Eventually(t, "its time is over", func() bool {
		y.EndTooLarge(t.Context())
		return len(y.left()) == 0
	})
	y.runs(machine.ContainersRunArgs{Argv: []string{"/bin/sleep", "1000"}, Background: true})
	ended, err := y.End(t.Context(), connector.End{Attachment: y.lease.Attachment, Epoch: 1, Revoked: true})
	if err != nil || ended.Killed < 1 || ended.Survivors != 0 || len(y.left()) != 0 {
		t.Errorf("the end %+v, %v, left is %v", ended, err, y.left())
	}
}

// A call that is called off ends its container.
func TestContainerCalledOff(t *testing.T) {
	y := newYard(t, "most: 4,")
	o := y.order("containers_run", machine.ContainersRunArgs{Image: y.image, Argv: []string{"/bin/sleep", "1000"}})
	o.Patience = time.Millisecond
	buskit.Eventually(t, "it runs", func() bool { y.Do(t.Context(), o); return len(y.left()) == 1 })
	y.Cancel(t.Context(), connector.Cancel{Call: o.Call})
	buskit.Eventually(t, "it is gone", func() bool { return len(y.left()) == 0 })
	y.do(o)
}
