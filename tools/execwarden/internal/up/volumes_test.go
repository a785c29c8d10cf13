package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// A drained environment keeps what is attached, and takes nothing else until that is called off.
func TestDrained(t *testing.T) {
	w := newWorld(t)
	w.newOutpost("box", "")
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	if err := w.DrainEnvironment(t.Context(), "box", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Errorf("who holds it: %v", err)
	}
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Volume: "other", Agent: "worker"}); err == nil || !strings.Contains(err.Error(), "drained") {
		t.Errorf("another volume: %v", err)
	}
	if e := w.environment("box"); !e.Draining || e.Volumes[0].Attached == nil {
		t.Errorf("%+v", e)
	}
	if err := w.DrainEnvironment(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Volume: "other", Agent: "worker"}); err != nil {
		t.Errorf("after it was called off: %v", err)
	}
}

// What a volume held at a checkpoint comes back, and is in its clone, by the registry's word of what it was.
func TestVolumeCopies(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.cfg.Home, "volumes", "main", "a")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the volume is there", func() bool { _, err := os.Stat(filepath.Dir(file)); return err == nil })
	for _, text := range []string{"one", "two"} {
		write(text)
		if _, err := w.CheckpointVolume(t.Context(), "box", client.VolumeCopy{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.RestoreVolume(t.Context(), "box", client.VolumeCopy{Checkpoint: 1}); err == nil || !strings.Contains(err.Error(), "release it first") {
		t.Errorf("restore of what is attached: %v", err)
	}
	if _, err := w.Release(t.Context(), "box", "main", false, ""); err != nil {
		t.Fatal(err)
	}
	if v, err := w.CloneVolume(t.Context(), "box", client.VolumeCopy{To: "copy"}); err != nil || v.From != "main" {
		t.Errorf("clone: %+v, %v", v, err)
	}
	if v, err := w.RestoreVolume(t.Context(), "box", client.VolumeCopy{Checkpoint: 1}); err != nil || v.Restored == nil || v.Restored.Generation != 1 || len(v.Checkpoints) != 2 {
		t.Errorf("restore: %+v, %v", v, err)
	}
	for path, want := range map[string]string{file: "one", filepath.Join(o.cfg.Home, "volumes", "copy", "a"): "two"} {
		if raw, err := os.ReadFile(path); err != nil || string(raw) != want {
			t.Errorf("%s: %q, %v", path, raw, err)
		}
	}
	// The machine's own word of what a checkpoint was is worth nothing.
	damaged := filepath.Join(o.cfg.Home, "checkpoints", "main", "2", "manifest.json")
	if err := os.WriteFile(damaged, []byte(`{"generation":2,"entries":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RestoreVolume(t.Context(), "box", client.VolumeCopy{Checkpoint: 2}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("restore of another manifest: %v", err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "one" {
		t.Errorf("the volume changed: %q, %v", raw, err)
	}
}
