package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/dockerkit"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/shimkit"
)

// dock is a machine whose driver is docker.
type dock struct {
	*Host
	t     testing.TB
	api   *client.Client
	cfg   Config
	lease connector.Lease
}

func newDock(t testing.TB, policy string) *dock {
	t.Helper()
	d := &dock{t: t, api: dockerkit.Engine(t)}
	home := t.TempDir()
	d.cfg = Config{Home: home, Name: "dock-" + strings.ToLower(filepath.Base(filepath.Dir(home))), Driver: environment.Docker, Shim: shimkit.BuildShim(t), Log: slog.New(slog.DiscardHandler),
		Policy: d.policy("volumes: " + home + "/volumes\n" + policy)}
	t.Cleanup(func() { dockerkit.RemoveAll(t, d.api, home) })
	d.open()
	d.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: 1}
	if err := d.Open(t.Context(), d.lease); err != nil {
		t.Fatal(err)
	}
	return d
}

// policy reads a policy whose docker section, in its last line, gets the test's image.
func (d *dock) policy(text string) *localpolicy.Policy {
	d.t.Helper()
	if !strings.Contains(text, "docker:") {
		text += "docker: {}"
	}
	text = strings.Replace(text, "docker: {", "docker: {image: \""+dockerkit.Image(d.t, d.api)+"\", ", 1)
	p, err := localpolicy.Parse([]byte(text))
	if err == nil {
		err = p.For(environment.Docker)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *dock) open() {
	d.t.Helper()
	h, err := New(d.t.Context(), d.cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Host = h
	d.t.Cleanup(func() {
		if d.Host == h {
			h.Close()
		}
	})
}

// reopen is the next life of the connector.
func (d *dock) reopen() {
	d.t.Helper()
	d.Close()
	d.Host = nil
	d.open()
	if err := d.Open(d.t.Context(), d.lease); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dock) order(tool string, args any) connector.Order {
	d.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		d.t.Fatal(err)
	}
	return connector.Order{Attachment: d.lease.Attachment, Epoch: 1, Volume: "main", Call: id.New[id.Call](), Tool: "machine." + tool, Args: raw, Patience: 20 * time.Second}
}

func (d *dock) exec(args machine.ExecArgs) (out machine.Exec) {
	d.t.Helper()
	a := d.Do(d.t.Context(), d.order("exec", args))
	if a.State != connector.Done {
		d.t.Fatalf("the command %+v: %+v", args, a)
	}
	if err := json.Unmarshal(a.Result, &out); err != nil {
		d.t.Fatal(err)
	}
	return out
}

func (d *dock) sh(line string) machine.Exec {
	d.t.Helper()
	return d.exec(machine.ExecArgs{Command: line})
}

// Commands are in a container of the owner's image, see its programs and the volume, and not what is the shim's; and the
// file tools see what they see, under the same paths.
func TestDocker(t *testing.T) {
	d := newDock(t, "")
	is := d.Manifest().Isolation
	if !is.Container || !is.NoNewPrivs || !is.Seccomp || !is.Network || is.Cgroup {
		t.Errorf("isolation %+v", is)
	}
	volume := filepath.Join(d.cfg.Home, "volumes", "main")
	if a := d.Do(t.Context(), d.order("write_file", map[string]string{"path": "src/a.txt", "content": "one"})); a.State != connector.Done || a.ToolError {
		t.Fatalf("write_file: %+v", a)
	}
	for line, want := range map[string]string{
		"cat /etc/os-release":           "ID=" + dockerkit.Marker + "\n",
		"of-the-image":                  dockerkit.Marker + "\n",
		"cat src/a.txt; pwd":            "one" + volume + "\n",
		"cat " + volume + "/src/a.txt":  "one",
		"id -u":                         "65534\n",
		"grep CapEff /proc/self/status": "CapEff:\t0000000000000000\n",
		"ls /sys/class/net":             "lo\n",
		"cat /.execwarden/attachment/shim.json || echo no": "no\n",
		"ls /.execwarden || echo no":                       "no\n",
		"/.execwarden/shim serve x || echo no":             "no\n",
		"mount -t tmpfs x /tmp || echo no":                 "no\n",
		"kill -9 1 || echo no":                             "no\n",
		"echo x >/tmp/x && cat /tmp/x":                     "x\n",
		"echo two >two && ls " + volume + "/two":           volume + "/two\n",
		"test -e " + d.cfg.Home + "/connector.yaml || test -e " + d.cfg.Home + "/attachments || echo no": "no\n",
	} {
		if e := d.sh(line); e.Stdout != want {
			t.Errorf("%s: %q, want %q; %s", line, e.Stdout, want, e.Stderr)
		}
	}
	if a := d.Do(t.Context(), d.order("read_file", map[string]string{"path": volume + "/two"})); !strings.Contains(string(a.Result), `two\n`) {
		t.Errorf("read_file: %+v", a)
	}
	if e := d.sh("true"); !strings.Contains(e.Isolation, "container") || !strings.Contains(e.Isolation, "network") {
		t.Errorf("isolation of a command: %s", e.Isolation)
	}
}

// The connector's end is not the container's: the next life has the command's end and its output.
func TestDockerConnectorEnds(t *testing.T) {
	d := newDock(t, "")
	o := d.order("exec", machine.ExecArgs{Command: "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended"})
	o.Patience = 0
	if a := d.Do(t.Context(), o); a.State != connector.UnderWay {
		t.Fatalf("%+v", a)
	}
	before := dockerkit.Containers(t, d.api, d.cfg.Home)
	d.reopen()
	if after := dockerkit.Containers(t, d.api, d.cfg.Home); len(before) != 2 || len(after) != 2 || !slices.Contains(after, "execwarden-"+string(d.lease.Attachment)) {
		t.Errorf("containers %v, then %v", before, after)
	}
	if err := os.WriteFile(filepath.Join(d.cfg.Home, "volumes", "main", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o.Patience = 20 * time.Second
	if a := d.Do(t.Context(), o); !strings.Contains(string(a.Result), `begun\nended\n`) {
		t.Errorf("%+v", a)
	}
}

// An end leaves no process and no container, whatever commands did to stay; asked again it is as ended.
func TestDockerEnd(t *testing.T) {
	d := newDock(t, "")
	d.exec(machine.ExecArgs{Command: "trap '' TERM; for i in 1 2 3; do setsid env -i sh -c 'trap \"\" TERM; while :; do sleep 1; done' & done; echo; sleep 1000", Background: true})
	buskit.Eventually(t, "they run", func() bool { return strings.Count(d.sh("ps").Stdout, "while :;") >= 3 })
	ended, err := d.End(t.Context(), connector.End{Attachment: d.lease.Attachment, Epoch: 1, Revoked: true})
	if err != nil || ended.Survivors != 0 || ended.Killed < 4 {
		t.Errorf("ended %+v, %v", ended, err)
	}
	if left := dockerkit.Containers(t, d.api, d.cfg.Home); len(left) != 1 { // the probe's
		t.Errorf("containers %v", left)
	}
	if ended, err = d.End(t.Context(), connector.End{Attachment: d.lease.Attachment, Epoch: 1}); err != nil || ended != (connector.Ended{}) {
		t.Errorf("ended again %+v, %v", ended, err)
	}
	d.Close()
	d.Host = nil
	if left := dockerkit.Containers(t, d.api, d.cfg.Home); len(left) != 0 {
		t.Errorf("containers after the connector's end %v", left)
	}
}

// A timeout ends everything that a command began, also what left its session and its environment.
func TestDockerTimeout(t *testing.T) {
	d := newDock(t, "")
	e := d.exec(machine.ExecArgs{Command: "setsid sleep 1001 & setsid setsid sleep 1002 & exec env -i /bin/sleep 1003", Timeout: 1})
	if e.Reason != "timeout" || e.Survivors != 0 {
		t.Errorf("%+v", e)
	}
	if ps := d.sh("ps").Stdout; strings.Contains(ps, "sleep 100") {
		t.Errorf("left: %s", ps)
	}
}

// A command that ends everything of its user ends its own shim too. The next one has another.
func TestDockerCommandKillsAll(t *testing.T) {
	d := newDock(t, "")
	d.Do(t.Context(), d.order("exec", machine.ExecArgs{Command: "kill -9 -1"}))
	buskit.Eventually(t, "the shim has ended", func() bool { return !d.places[d.lease.Attachment].shim.There(t.Context()) })
	if e := d.sh("echo lives"); e.Stdout != "lives\n" {
		t.Errorf("%+v", e)
	}
}

// Whoever lost its parent is asked how it ended, by the shim's launcher or by process 1.
func TestDockerReaps(t *testing.T) {
	d := newDock(t, "")
	d.sh("for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 0.5")
	buskit.Eventually(t, "no zombie is left", func() bool { return !strings.Contains(d.sh("ps -o stat").Stdout, "Z") })
}

// A container that somebody killed takes its commands with it: how they ended is not known, none runs again, and the next
// command has a container again.
func TestDockerContainerKilled(t *testing.T) {
	d := newDock(t, "")
	o := d.order("exec", machine.ExecArgs{Command: "echo x >>counter; sleep 1000"})
	o.Patience = 0
	if a := d.Do(t.Context(), o); a.State != connector.UnderWay {
		t.Fatalf("%+v", a)
	}
	counter := filepath.Join(d.cfg.Home, "volumes", "main", "counter")
	buskit.Eventually(t, "it runs", func() bool { raw, _ := os.ReadFile(counter); return len(raw) > 0 })
	if _, err := d.api.ContainerKill(t.Context(), "execwarden-"+string(d.lease.Attachment), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "it is gone", func() bool { return !d.places[d.lease.Attachment].shim.There(t.Context()) })
	o.Patience = 20 * time.Second
	if a := d.Do(t.Context(), o); a.State != connector.Unknown || !strings.Contains(a.Message, "unknown_outcome") {
		t.Errorf("%+v", a)
	}
	if e := d.sh("cat counter"); e.Stdout != "x\n" {
		t.Errorf("it ran %q times", e.Stdout)
	}
}

// Orders that find no shim have one begun between them, and none for an attachment that ends at the same moment.
func TestDockerBegunOnce(t *testing.T) {
	d := newDock(t, "")
	name := "execwarden-" + string(d.lease.Attachment)
	kill := func() {
		t.Helper()
		if _, err := d.api.ContainerKill(t.Context(), name, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			t.Fatal(err)
		}
	}
	kill()
	var orders sync.WaitGroup
	for range 4 {
		o := d.order("exec", machine.ExecArgs{Command: "echo x >>counter"})
		orders.Go(func() {
			if a := d.Do(t.Context(), o); a.State != connector.Done || a.ToolError {
				t.Errorf("%+v", a)
			}
		})
	}
	orders.Wait()
	if e := d.sh("cat counter"); e.Stdout != strings.Repeat("x\n", 4) {
		t.Errorf("%+v", e)
	}
	kill()
	for range 4 {
		o := d.order("exec", machine.ExecArgs{Command: "sleep 1000"})
		o.Patience = 0
		orders.Go(func() { d.Do(t.Context(), o) })
	}
	if ended, err := d.End(t.Context(), connector.End{Attachment: d.lease.Attachment, Revoked: true}); err != nil || ended.Survivors != 0 {
		t.Errorf("%+v, %v", ended, err)
	}
	orders.Wait()
	if left := dockerkit.Containers(t, d.api, d.cfg.Home); slices.Contains(left, name) {
		t.Errorf("a container of what has ended: %v", left)
	}
}

// What a life that was killed left is removed by the next: containers of attachments that have ended, and its probe's. One
// that is another connector's stays.
func TestDockerSweep(t *testing.T) {
	d := newDock(t, "")
	name := "execwarden-" + string(d.lease.Attachment)
	if err := os.Remove(filepath.Join(d.cfg.Home, "attachments", string(d.lease.Attachment), leaseFile)); err != nil {
		t.Fatal(err)
	}
	killed := d.Host
	_ = killed.probe.lock.Close() // as the kernel does, with all else
	killed.probe.place.close()
	killed.places[d.lease.Attachment].close()
	killed.driver.close()
	d.open()
	if left := dockerkit.Containers(t, d.api, d.cfg.Home); len(left) != 1 || left[0] == name || left[0] == "execwarden-"+string(killed.probe.lease.Attachment) {
		t.Errorf("containers %v", left)
	}
	d.cfg.Name += "-other"
	other, err := New(t.Context(), d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.sweep(t.Context())
	d.sweep(t.Context())
	if left := dockerkit.Containers(t, d.api, d.cfg.Home); len(left) != 2 {
		t.Errorf("a live probe was swept: %v", left)
	}
}

// The rules of the policy hold in a container: its programs are looked for there, limits are the kernel's, and roots are
// read-only where they are.
func TestDockerPolicy(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "data"), []byte("set"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := newDock(t, "shell: false\nprograms: [/bin/busybox]\nroots: [{path: "+root+"}]\ndocker: {memory: 64m, pids: 64, read_only: true, user: \"1234:1235\"}")
	if e := d.exec(machine.ExecArgs{Argv: []string{"cat", root + "/data"}}); e.Stdout != "set" {
		t.Errorf("%+v", e)
	}
	for what, argv := range map[string][]string{
		"a read-only root":  {"touch", root + "/data2"},
		"a read-only image": {"touch", "/bin/x"},
	} {
		if e := d.exec(machine.ExecArgs{Argv: argv}); e.Code == nil || *e.Code == 0 {
			t.Errorf("%s was written: %+v", what, e)
		}
	}
	if e := d.exec(machine.ExecArgs{Argv: []string{"id"}}); !strings.Contains(e.Stdout, "uid=1234 gid=1235") {
		t.Errorf("%+v", e)
	}
	if a := d.Do(t.Context(), d.order("exec", machine.ExecArgs{Argv: []string{"of-the-image"}})); a.State != connector.Refused || !strings.Contains(a.Message, "rule programs") {
		t.Errorf("another program: %+v", a)
	}
	// 64 MiB are not enough for 256 MiB: the kernel ends it, and the shim lives.
	if e := d.exec(machine.ExecArgs{Argv: []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1"}}); e.Code != nil && *e.Code == 0 {
		t.Errorf("memory: %+v", e)
	}
	if e := d.exec(machine.ExecArgs{Argv: []string{"echo", "lives"}}); e.Stdout != "lives\n" {
		t.Errorf("%+v", e)
	}
}

// What is wrong with the engine or the image is said at once, in words that lead on, and leaves nothing.
func TestDockerFaults(t *testing.T) {
	d := &dock{t: t, api: dockerkit.Engine(t)}
	home := t.TempDir()
	cfg := Config{Home: home, Name: "faults", Driver: environment.Docker, Shim: shimkit.BuildShim(t), Log: slog.New(slog.DiscardHandler)}
	for what, c := range map[string]struct {
		section string
		code    problem.Code
		words   string
	}{
		"no such image":   {"docker: {image: execwarden-test:absent}", problem.NotFound, "docker pull"},
		"no engine":       {"docker: {image: a, socket: /nowhere/docker.sock}", problem.Unavailable, "does not answer"},
		"no such network": {"docker: {image: \"" + dockerkit.Image(t, d.api) + "\", network: absent}", problem.Unavailable, "absent"},
		"no such runtime": {"docker: {image: \"" + dockerkit.Image(t, d.api) + "\", runtime: absent}", problem.Unavailable, "absent"},
	} {
		p, err := localpolicy.Parse([]byte("volumes: " + home + "/volumes\n" + c.section))
		if err == nil {
			err = p.For(environment.Docker)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		cfg.Policy = p
		h, err := New(context.WithoutCancel(t.Context()), cfg)
		if problem.CodeOf(err) != c.code || !strings.Contains(problem.DetailOf(err).Message, c.words) {
			t.Errorf("%s: %v", what, err)
		}
		if h != nil {
			h.Close()
		}
		if left := dockerkit.Containers(t, d.api, home); len(left) != 0 {
			t.Errorf("%s: containers %v", what, left)
		}
	}
}
