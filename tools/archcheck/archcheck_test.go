package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"schemas/call", project + "schemas/id", true},
		{"schemas/call", "encoding/json", true},
		{"schemas/call", "github.com/google/uuid", false},
		{"schemas", project + "libs/bus", false},
		{"libs/bus", project + "schemas", true},
		{"libs/bus", "github.com/ThreeDotsLabs/watermill/message", true},
		{"libs/eventlog", "github.com/ThreeDotsLabs/watermill/message", false},
		{"libs/executor", project + "services/toolbroker", false},
		{"services/agentloop", project + "services/agentloop/internal/loop", true},
		{"services/agentloop_test", project + "services/agentloop", true},
		{"services/agentloop/internal/loop", project + "services/toolbroker/internal/policy", false},
		{"services/gateway", project + "services/gatewayx", false},
		{"services/gateway", project + "tools/sample", false},
		{"tools/execwarden/internal/up", project + "services/gateway", true},
	} {
		if why := forbidden(c.from, c.to); (why == "") != c.ok {
			t.Errorf("%s -> %s: %q, want ok %v", c.from, c.to, why, c.ok)
		}
	}
}

func TestWalkAndRooms(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range services {
		write("services/"+s+"/doc.go", strings.Join(promises, "x\n"))
		write("services/"+s+"/service.go", "")
		write("services/"+s+"/cmd/"+s+"/main.go", "")
	}
	write("docs/02-walk.md", "see `services/ledger/doc.go` and `services/ledger/service.go:New`")
	if faults := append(rooms(root), walk(root)...); len(faults) > 0 {
		t.Fatalf("a good house: %v", faults)
	}
	write("docs/02-walk.md", "see `services/ledger/gone.go`")
	write("services/approvals/doc.go", "// Hears: \n// Says: \n// Owns: \n")
	write("libs/utils/x.go", "")
	faults := strings.Join(append(rooms(root), walk(root)...), "\n")
	for _, want := range []string{"gone.go", "Never:", "libs/utils"} {
		if !strings.Contains(faults, want) {
			t.Errorf("nothing is said of %s in:\n%s", want, faults)
		}
	}
}
