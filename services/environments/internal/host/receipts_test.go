package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

// A connector that was killed between the receipt of a change and its answer: what it leaves on the disk decides. With the
// receipt the change may be there, and is not made again; without it nothing was begun, and it is made now.
func TestKilledBetween(t *testing.T) {
	for name, persisted := range map[string]bool{"persisted": true, "not persisted": false} {
		b := newBox(t, "")
		o := b.order("write_file", machine.WriteFileArgs{Path: "file", Content: "after"})
		if err := os.WriteFile(filepath.Join(b.volume, "file"), []byte("before"), 0o666); err != nil {
			t.Fatal(err)
		}
		b.Close()
		path := filepath.Join(b.home, "attachments", string(b.lease.Attachment), "done", string(o.Call)+".json")
		if persisted {
			raw, err := json.Marshal(map[string]string{"digest": permit.Digest([]byte(o.Tool), o.Args)})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.begin()
		if err := b.Open(t.Context(), b.lease); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			a := b.do(o)
			file, err := os.ReadFile(filepath.Join(b.volume, "file"))
			switch {
			case err != nil:
				t.Fatal(err)
			case persisted && (a.State != connector.Unknown || !strings.Contains(a.Message, "unknown_outcome") || string(file) != "before"):
				t.Errorf("%s: %+v, the file is %q", name, a, file)
			case !persisted && (a.State != connector.Done || a.ToolError || string(file) != "after"):
				t.Errorf("%s: %+v %s, the file is %q", name, a, a.Result, file)
			}
		}
		if persisted {
			continue
		}
		// A receipt that was cut off says nothing that could be believed.
		if err := os.WriteFile(path, []byte(`{"dig`), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := b.do(o); a.State != connector.Unknown {
			t.Errorf("a receipt that was cut off: %+v", a)
		}
	}
}
