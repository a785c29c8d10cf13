package github

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of tools into docs/connections.md")

const (
	document   = "../../../../docs/connections.md"
	tableBegin = "<!-- the table of GitHub tools; go test ./services/toolbroker/internal/github -run TestDocumentedTools -update -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// The document's table is the tools' own.
func TestDocumentedTools(t *testing.T) {
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatal("docs/connections.md has no place for the table of GitHub tools")
	}
	want := before + tableBegin + documented() + tableEnd + after
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Error("docs/connections.md has another table of GitHub tools; -update writes it")
	}
}

func documented() string {
	var b strings.Builder
	b.WriteString("| tool | arguments | effect | risk | an App needs |\n|---|---|---|---|---|\n")
	for _, one := range tools {
		var args []string
		for i, p := range append(slices.Clone(one.required), one.optional...) {
			name := "`" + p.name + "`"
			switch {
			case p.name == "owner" || p.name == "repo":
				continue
			case p.name == "method":
				name += ": " + strings.Join(words(p.schema), ", ")
			case i >= len(one.required):
				name = "[" + name + "]"
			}
			args = append(args, name)
		}
		if slices.ContainsFunc(one.required, func(p param) bool { return p.name == "repo" }) {
			args = append([]string{"…"}, args...)
		}
		needs := strings.Join(strings.Fields(one.needs.String()), ", ")
		for _, m := range slices.Sorted(maps.Keys(one.by)) {
			needs += fmt.Sprintf("; %s %s", m, strings.Join(strings.Fields(one.by[m].String()), ", "))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", one.name, strings.Join(args, " "), one.effect, one.risk, needs)
	}
	return b.String()
}

// words are the values of an enum's schema.
func words(schema string) (out []string) {
	_, list, _ := strings.Cut(schema, "[")
	list, _, _ = strings.Cut(list, "]")
	for w := range strings.SplitSeq(list, ",") {
		out = append(out, strings.Trim(w, `"`))
	}
	return out
}

// There are 34 tools, each described, and only what reads is called so.
func TestToolTable(t *testing.T) {
	seen := map[string]bool{}
	for _, one := range tools {
		if seen[one.name] || one.about == "" || one.risk == "" || len(one.routes) == 0 || one.call == nil {
			t.Errorf("%s is there twice, or lacks something", one.name)
		}
		seen[one.name] = true
		if pure := one.risk == reads || one.risk == exposes; pure != (one.effect == "pure") {
			t.Errorf("%s is %s and %s", one.name, one.effect, one.risk)
		}
		if (one.probe != nil) != (one.effect == "probeable") {
			t.Errorf("%s is %s; has a probe: %v", one.name, one.effect, one.probe != nil)
		}
		about := slices.ContainsFunc(one.required, func(p param) bool { return p.name == "repo" })
		if about != strings.Contains(strings.Join(one.routes, " "), "{repo}") || about != (len(one.needs) > 0) {
			t.Errorf("%s: its arguments, routes and permissions disagree on whether it is about a repository", one.name)
		}
		if n := len(schemaOf(one.required, one.optional)); n > 1600 {
			t.Errorf("%s: its schema has %d bytes, which every model that may call it reads", one.name, n)
		}
	}
	if len(tools) != 34 {
		t.Errorf("%d tools", len(tools))
	}
}
