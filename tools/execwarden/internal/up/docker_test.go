package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/dockerkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// The whole way with driver docker: a run writes a file and works on it in a container of the owner's image, and a
// revocation in the middle of a command leaves no process and no container.
func TestDockerMachine(t *testing.T) {
	api := dockerkit.Engine(t)
	image := dockerkit.Image(t, api)
	w := newWorld(t)
	o := w.newOutpostOf(environment.Docker, "dock", "min_isolation: [no_new_privs, landlock, seccomp, container]\ndocker: {image: \""+image+"\", memory: 256m}")
	t.Cleanup(func() { dockerkit.RemoveAll(t, api, o.cfg.Home) })
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("dock").State == ask.Online })
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "src/a.txt", "content": "one\n"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "of-the-image; cat /etc/os-release; cat a.txt", "cwd": "src"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "trap '' TERM; setsid env -i sleep 1000 & touch runs; sleep 1000"}},
	)
	if _, err := w.Attach(t.Context(), "dock", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StartRun(t.Context(), "worker", "go"); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the last command runs", func() bool {
		_, err := os.Stat(filepath.Join(o.cfg.Home, "volumes", "main", "runs"))
		return err == nil
	})
	if list := dockerkit.Containers(t, api, o.cfg.Home); len(list) != 2 { // the attachment's and the probe's
		t.Errorf("containers %v", list)
	}
	r, err := w.Release(t.Context(), "dock", "main", true, "it was stolen")
	if err != nil {
		t.Fatal(err)
	}
	if r.Survivors != 0 || r.Killed < 2 {
		t.Errorf("revoked: %+v", r)
	}
	if list := dockerkit.Containers(t, api, o.cfg.Home); len(list) != 1 {
		t.Errorf("containers after the revocation %v", list)
	}
	row := w.ended()
	events, err := w.Timeline(t.Context(), row.Run, client.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	saw := false
	for _, e := range events.Events {
		if envelope, err := e.Envelope(); err == nil && strings.HasPrefix(e.Kind, "call.finished") {
			if got := resultOf[machine.Exec](t, envelope.Data); got.Stdout == dockerkit.Marker+"\nID="+dockerkit.Marker+"\none\n" && strings.Contains(got.Isolation, "container") {
				saw = true
			}
		}
	}
	if !saw {
		t.Errorf("no command ran in the container: %+v", events)
	}
	if v := w.environment("dock").Volumes[0]; v.Attached != nil || v.Ended == nil || v.Ended.How != volume.Revoked || v.Ended.Survivors != 0 {
		t.Errorf("the volume %+v", v)
	}
}
