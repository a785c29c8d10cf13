package id_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

func TestDerive(t *testing.T) {
	if got := id.Derive[id.Run]("tnt_a", "dlv_1", "trg_1"); got != id.Derive[id.Run]("tnt_a", "dlv_1", "trg_1") {
		t.Error("the same parts give another id")
	}
	// What is stored under derived ids has to be found by the next release too.
	if got := id.Derive[id.Call]("run_1", "1", "0"); got != "call_2601c5356de188d39a00059c6c35fd68" {
		t.Errorf("derivation changed: %s", got)
	}
	seen := map[string][]string{}
	for _, parts := range [][]string{
		nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"a", "", "b"}, {"b", "a"}, {"a\x00", "b"}, {"a", "\x00b"},
		{"a\x00\x00\x00\x01b"}, {"\x00\x00\x00\x01a"}, {strings.Repeat("a", 70_000)}, {strings.Repeat("a", 69_999), "a"},
	} {
		got := string(id.Derive[id.Run](parts...))
		if before, twice := seen[got]; twice {
			t.Errorf("%.40q and %.40q give the same id", before, parts)
		}
		seen[got] = parts
		if _, err := id.Parse[id.Run](got); err != nil {
			t.Error(err)
		}
	}
	if id.Name(id.Derive[id.Run]("x")) != id.Name(id.Derive[id.Call]("x")) {
		t.Error("only the prefix tells kinds apart")
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"run_1", "run_a-b", "run_" + strings.Repeat("a", id.MaxNameLength), string(id.New[id.Run]())} {
		if got, err := id.Parse[id.Run](text); err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "run", "run_", "_1", "1", "Run_1", "run_A", "call_1", "runs_1", " run_1", "run_1 ", "run_1\n", "run_-1", "run_a_b", "run_a.b",
		"run_*", "run_>", "run_/", "run_..", "run_ü", "run_\x00", "run_" + strings.Repeat("a", id.MaxNameLength+1), "run_run_1", strings.Repeat("x", 1<<20),
	} {
		if got, err := id.Parse[id.Run](text); err == nil {
			t.Errorf("%.60q is a run", got)
		} else if len(err.Error()) > 500 {
			t.Errorf("the error about %.20q repeats %d bytes", text, len(err.Error()))
		}
	}
}

func TestNamed(t *testing.T) {
	got, err := id.Named[id.Agent]("triage-2")
	if err != nil || got != "agt_triage-2" || id.Name(got) != "triage-2" {
		t.Errorf("%s, %v", got, err)
	}
	for _, name := range []string{"", "-a", "a_b", "A", "a b", "a.b", strings.Repeat("a", 49)} {
		if got, err := id.Named[id.Agent](name); err == nil {
			t.Errorf("%q is named %s", name, got)
		}
	}
}

func TestNewSortsByTime(t *testing.T) {
	var made []id.Event
	seen := map[id.Event]bool{}
	for range 20 {
		for range 50 {
			e := id.New[id.Event]()
			if seen[e] {
				t.Fatalf("%s was made twice", e)
			}
			seen[e] = true
		}
		made = append(made, id.New[id.Event]())
		time.Sleep(2 * time.Millisecond) // ids of one millisecond have no order
	}
	if !slices.IsSorted(made) {
		t.Errorf("%v", made)
	}
	for _, e := range made {
		name := id.Name(e)
		if _, err := id.Parse[id.Event](string(e)); err != nil || len(name) != 32 || name[12] != '7' || !strings.ContainsRune("89ab", rune(name[16])) {
			t.Errorf("%s is no UUIDv7", e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("call_1")
	f.Add("call_a_b")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := id.Parse[id.Call](text)
		if err == nil && (string(c) != text || strings.ContainsAny(text, ".*> \n") || len(text) > 5+id.MaxNameLength) {
			t.Errorf("%q is a call", text)
		}
	})
}
