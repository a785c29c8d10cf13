package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/shimkit"
)

// newMachine is a machine whose driver is host.
func newMachine(t *testing.T, policy string) *dock {
	t.Helper()
	home, err := os.MkdirTemp("", "m") // its socket's path has to be short, and root's alone is no place for commands
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o711); err != nil {
		t.Fatal(err)
	}
	p, err := localpolicy.Parse([]byte("volumes: " + home + "/volumes\n" + policy))
	if err != nil {
		t.Fatal(err)
	}
	d := &dock{t: t, cfg: Config{Home: home, Name: "m", Driver: environment.Host, Shim: shimkit.BuildShim(t), Log: slog.New(slog.DiscardHandler), Policy: p}}
	t.Cleanup(func() { shimkit.EndAll(home); _ = os.RemoveAll(home) })
	d.open()
	d.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: 1}
	if err := d.Open(t.Context(), d.lease); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *dock) release() {
	d.t.Helper()
	if _, err := d.End(d.t.Context(), connector.End{Attachment: d.lease.Attachment}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dock) read(volume, name string) string {
	raw, err := os.ReadFile(filepath.Join(d.cfg.Home, "volumes", volume, name))
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// A checkpoint waits for nobody: what runs refuses it, what it holds refuses orders, and it comes back as it was, for the
// user that commands have.
func TestVolumes(t *testing.T) {
	d := newMachine(t, "checkpoints: 2")
	d.sh("echo one >a; mkdir b; ln -s ../a b/link")
	o := d.order("exec", machine.ExecArgs{Command: "touch runs; while [ ! -e go ]; do sleep 0.05; done", Background: true})
	if a := d.Do(t.Context(), o); a.State != connector.Done {
		t.Fatalf("%+v", a)
	}
	refuses := func(what string, want problem.Code, err error) {
		t.Helper()
		if problem.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	_, err := d.Checkpoint(t.Context(), connector.Checkpoint{Volume: "main", Generation: 1})
	refuses("while a command runs", problem.Conflict, err)
	_, err = d.Clone(t.Context(), connector.Clone{Volume: "main", To: "other"})
	refuses("a clone while a command runs", problem.Conflict, err)
	d.sh("touch go")
	buskit.Eventually(t, "it has ended", func() bool { return d.Execs() == 0 })
	var manifests []string
	for generation := 1; generation <= 3; generation++ {
		d.sh("echo " + strconv.Itoa(generation) + " >n")
		made, err := d.Checkpoint(t.Context(), connector.Checkpoint{Volume: "main", Generation: generation})
		if err != nil || made.Files != 4 || len(made.Manifest) != 64 || len(made.Kept) != min(generation, 2) {
			t.Fatalf("%+v, %v", made, err)
		}
		manifests = append(manifests, made.Manifest)
	}
	leave, err := d.quiet(t.Context(), "main", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []connector.Order{d.order("exec", machine.ExecArgs{Command: "true"}), d.order("write_file", machine.WriteFileArgs{Path: "x", Content: "x"})} {
		if a := d.Do(t.Context(), o); a.State != connector.Refused || a.Code != string(problem.Busy) {
			t.Errorf("%s while it is copied: %+v", o.Tool, a)
		}
	}
	if a := d.Do(t.Context(), d.order("read_file", machine.ReadFileArgs{Path: "a"})); a.State != connector.Done || a.ToolError {
		t.Errorf("a read while it is copied: %+v", a)
	}
	leave()
	if c, err := d.Clone(t.Context(), connector.Clone{Volume: "main", To: "other"}); err != nil || c.Files != 4 || d.read("other", "a") != "one\n" {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = d.Clone(t.Context(), connector.Clone{Volume: "main", To: "other"})
	refuses("a clone to what is there", problem.Conflict, err)
	for _, name := range []string{"", "..", "a/b", ".probe"} {
		_, err = d.Checkpoint(t.Context(), connector.Checkpoint{Volume: name, Generation: 1})
		refuses("volume "+name, problem.Invalid, err)
		_, err = d.Clone(t.Context(), connector.Clone{Volume: "main", To: name})
		refuses("to volume "+name, problem.Invalid, err)
		_, err = d.Restore(t.Context(), connector.Restore{Volume: name, Generation: 1})
		refuses("volume "+name, problem.Invalid, err)
	}
	_, err = d.Checkpoint(t.Context(), connector.Checkpoint{Volume: "absent", Generation: 1})
	refuses("no volume", problem.NotFound, err)

	second := connector.Restore{Volume: "main", Generation: 2, Manifest: manifests[1]}
	_, err = d.Restore(t.Context(), second)
	refuses("while it is attached", problem.Conflict, err)
	d.release()
	_, err = d.Restore(t.Context(), connector.Restore{Volume: "main", Generation: 2, Manifest: manifests[2]})
	refuses("another manifest", problem.Conflict, err)
	_, err = d.Restore(t.Context(), connector.Restore{Volume: "main", Generation: 1, Manifest: manifests[0]})
	refuses("one that made room", problem.NotFound, err)
	if got := d.read("main", "n"); got != "3\n" {
		t.Errorf("the volume changed: %s", got)
	}
	if _, err := d.Restore(t.Context(), second); err != nil || d.read("main", "n") != "2\n" {
		t.Errorf("%v, n %s", err, d.read("main", "n"))
	}
	d.lease.Attachment = id.New[id.Attachment]()
	if err := d.Open(t.Context(), d.lease); err != nil {
		t.Fatal(err)
	}
	if e := d.sh("cat b/link; echo 4 >n; cat n; touch .tmp/x"); e.Stdout != "one\n4\n" || *e.Code != 0 {
		t.Errorf("%+v", e)
	}
}

// A volume that is too large is written no further, what runs on it ends, and rm makes room.
func TestVolumeSize(t *testing.T) {
	d := newMachine(t, "volume_size: 1m")
	p := d.places[d.lease.Attachment]
	o := d.order("exec", machine.ExecArgs{Command: "dd if=/dev/zero of=big bs=1M count=4 2>/dev/null; touch full; sleep 1000", Background: true})
	if a := d.Do(t.Context(), o); a.State != connector.Done {
		t.Fatalf("%+v", a)
	}
	buskit.Eventually(t, "it is full", func() bool { return d.read("main", "full") == "" })
	d.forget(p)
	d.EndTooLarge(t.Context())
	if err := d.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := p.shim.Get(t.Context(), string(o.Call), 10*time.Second); err != nil || e.Reason != "volume_size" || e.Survivors != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, o := range []connector.Order{d.order("exec", machine.ExecArgs{Command: "rm big"}), d.order("write_file", machine.WriteFileArgs{Path: "x", Content: "x"})} {
		if a := d.Do(t.Context(), o); a.State != connector.Refused || !strings.Contains(a.Message, "rule volume_size") {
			t.Errorf("%s: %+v", o.Tool, a)
		}
	}
	if e := d.exec(machine.ExecArgs{Argv: []string{"rm", "big"}}); *e.Code != 0 {
		t.Errorf("%+v", e)
	}
	if e := d.sh("echo again"); e.Stdout != "again\n" {
		t.Errorf("%+v", e)
	}
}
