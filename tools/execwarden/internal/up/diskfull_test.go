package up

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// fill takes what room there is, and gives the way to give it back.
func fill(t *testing.T, dir string) (release func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// The machine's disk is full: a command goes on and its output says how much of it was not kept, a write says why it was not
// done and leaves what was there, nothing is begun whose receipt cannot be kept, and with room again all of it works.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a file system of its own")
	}
	home := shortDir(t)
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=24m,mode=0755"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(home, unix.MNT_DETACH) })
	w := newWorldAround(t)
	w.machines = func(c *environments.Config) { c.LeaseLife = shortLife }
	w.start()
	t.Cleanup(func() { w.stop() })
	w.newOutpostIn(home, "box", "")
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	volume := filepath.Join(home, "volumes", "main")
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "kept", "content": "before"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "touch waits; echo head; while [ ! -e full ]; do sleep 0.02; done; head -c 8000000 /dev/zero | tr '\\0' x; while [ ! -e room ]; do sleep 0.02; done; echo tail"},
			Values: map[string]string{"background": "true"}})
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	first, _ := w.results("worker")
	printer := resultOf[machine.Exec](t, first[1])
	release := fill(t, home)
	rename := func(to string) { // takes no room
		if err := os.Rename(filepath.Join(volume, "waits"), filepath.Join(volume, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename("full")

	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "kept", "content": strings.Repeat("after ", 20000)}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo begun > begun"}},
		scriptmodel.Call{Tool: "machine.read_file", Args: map[string]string{"path": "kept"}})
	full, row := w.results("worker")
	if row.State != "completed" || len(full) != 3 {
		t.Fatalf("with a full disk the run is %+v: %s", row, full)
	}
	for i, words := range []string{"no space left", "no space left", `"text":"before"`} {
		if !strings.Contains(string(full[i]), words) {
			t.Errorf("call %d with a full disk: %s", i, full[i])
		}
	}
	if raw, err := os.ReadFile(filepath.Join(volume, "kept")); err != nil || string(raw) != "before" {
		t.Errorf("the file is %q, %v", raw, err)
	}
	if _, err := os.Stat(filepath.Join(volume, "begun")); err == nil {
		t.Error("a command ran whose receipt was not kept")
	}
	buskit.Eventually(t, "the machine says that it does not work", func() bool { return w.environment("box").State == ask.Faulty })

	release()
	if err := os.Rename(filepath.Join(volume, "full"), filepath.Join(volume, "room")); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the machine works again", func() bool { return w.environment("box").State == ask.Online })
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "kept", "content": "afterwards"}},
		scriptmodel.Call{Tool: "machine.exec_read", Args: map[string]string{"exec": printer.Exec}, Values: map[string]string{"wait_s": "20", "after_offset": "8000005"}})
	again, _ := w.results("worker")
	if raw, err := os.ReadFile(filepath.Join(volume, "kept")); err != nil || string(raw) != "afterwards" {
		t.Errorf("the file is %q, %v: %s", raw, err, again)
	}
	// The output, as it is stored: every byte is there or counted.
	var kept, lost, at int64
	page := ask.Output{}
	buskit.Eventually(t, "the output is stored", func() bool {
		var err error
		if page, err = w.Output(t.Context(), id.Call(printer.Exec), page.Next, 0); err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Pieces {
			p, at = p.From(at)
			kept, lost = kept+int64(len(p.Data)), lost+p.Lost
		}
		return page.End != nil
	})
	if page.End.Code == nil || *page.End.Code != 0 || page.End.Bytes != 8000010 || page.End.Lost == 0 || kept+lost != page.End.Bytes || lost != page.End.Lost {
		t.Errorf("%d bytes kept, %d lost, of %+v", kept, lost, page.End)
	}
}
