package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

// What changed is told from cursor to cursor, also in directories that were just made, and what nobody knows is said.
func TestWatch(t *testing.T) {
	b := newBox(t, "")
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(b.volume, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(a machine.WatchArgs) machine.Watched {
		t.Helper()
		return result[machine.Watched](t, b.do(b.order("watch", a)))
	}
	shown := func(w machine.Watched) string {
		var out []string
		for _, c := range w.Changes {
			out = append(out, c.How+" "+c.Path)
		}
		return strings.Join(out, ", ")
	}
	write("a.go", "package a")
	write("b.txt", "text")
	first := ask(machine.WatchArgs{Glob: "**/*.go"})
	if first.Cursor == "" || len(first.Changes) > 0 || first.Resync {
		t.Fatalf("the beginning: %+v", first)
	}
	if got := ask(machine.WatchArgs{Glob: "**/*.go", Since: first.Cursor}); shown(got) != "" || got.Cursor != first.Cursor {
		t.Errorf("nothing changed: %+v", got)
	}
	// It waits for what a command does, and is asked again for what it answered.
	waiting := make(chan machine.Watched, 1)
	go func() { waiting <- ask(machine.WatchArgs{Glob: "**/*.go", Since: first.Cursor, Wait: 60}) }()
	b.sh("mkdir -p new/deep && echo x > d.txt && echo package c > new/deep/.ew-x && mv new/deep/.ew-x new/deep/c.go")
	second := <-waiting
	if shown(second) != "created new/deep/c.go" {
		t.Errorf("it waited for %+v", second)
	}
	if got := ask(machine.WatchArgs{Glob: "**/*.go", Since: first.Cursor}); shown(got) != "created new/deep/c.go" {
		t.Errorf("asked again: %+v", got)
	}
	write("a.go", "package b") // of the same size
	if err := os.Remove(filepath.Join(b.volume, "new/deep/c.go")); err != nil {
		t.Fatal(err)
	}
	if got := ask(machine.WatchArgs{Glob: "**/*.go", Since: second.Cursor}); shown(got) != "modified a.go, removed new/deep/c.go" {
		t.Errorf("%+v", got)
	}
	for i := range 1100 {
		write(fmt.Sprintf("many/%d.go", i), "")
	}
	if got := ask(machine.WatchArgs{Glob: "**/*.go", Since: second.Cursor}); !got.Resync || len(got.Changes) > 0 || got.Cursor == second.Cursor {
		t.Errorf("too much changed: %+v", got)
	}
	for range 17 {
		ask(machine.WatchArgs{Path: "many"})
	}
	if got := ask(machine.WatchArgs{Glob: "**/*.go", Since: second.Cursor}); !got.Resync {
		t.Errorf("a cursor that is not known any more: %+v", got)
	}
	for name, a := range map[string]machine.WatchArgs{"outside": {Path: "../.."}, "a file": {Path: "a.go"}, "no pattern": {Glob: "[["}, "long": {Wait: 61}, "another path": {Path: "new", Since: ask(machine.WatchArgs{}).Cursor}} {
		if got := b.do(b.order("watch", a)); got.State == connector.Done && !got.ToolError {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// One that waits ends when it is called off.
	o := b.order("watch", machine.WatchArgs{Path: "new", Since: ask(machine.WatchArgs{Path: "new"}).Cursor, Wait: 60})
	o.Patience = 1
	if a := b.Do(t.Context(), o); a.State != connector.UnderWay {
		t.Fatalf("%+v", a)
	}
	b.Cancel(t.Context(), connector.Cancel{Call: o.Call})
}
