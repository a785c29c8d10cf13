package command

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the golden files")

// TestHelp holds the whole command line in one file, so that a change of it is seen.
func TestHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	each(Root(), func(cmd *cobra.Command) {
		fmt.Fprintf(&out, "=== %s\n%s\n%s\n\n", cmd.CommandPath(), cmd.Long, cmd.LocalFlags().FlagUsages())
	})
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the help is another one; go test -update writes it (-want +got):\n%s", diff)
	}
}

// TestEveryCommandSaysHow is about each command that does something.
func TestEveryCommandSaysHow(t *testing.T) {
	t.Parallel()
	each(Root(), func(cmd *cobra.Command) {
		if cmd.HasSubCommands() && cmd.Name() != "runs" && cmd.Name() != "approvals" && cmd.Name() != "grants" && cmd.Name() != "members" && cmd.Name() != "keys" && cmd.Name() != "tokens" {
			return
		}
		if cmd.Example == "" || !strings.Contains(cmd.Long, "Exit codes:") || cmd.Args == nil {
			t.Errorf("%s has no example, no exit codes, or takes any arguments", cmd.CommandPath())
		}
	})
}

// each visits the commands of ours.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Name() == "completion" || cmd.Name() == "help" {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, visit)
	}
}

func TestOwnerTokenFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"XDG_STATE_HOME": "/s"}, "/var/lib/execwarden/owner.token"},
		{1000, map[string]string{"HOME": "/home/a"}, "/home/a/.local/state/execwarden/owner.token"},
		{1000, map[string]string{"HOME": "/home/a", "XDG_STATE_HOME": "/s"}, "/s/execwarden/owner.token"},
		{1000, map[string]string{"HOME": "/home/a", "XDG_STATE_HOME": "relative"}, "/home/a/.local/state/execwarden/owner.token"},
	} {
		if got := ownerTokenFile(tc.uid, func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// TestTokenIsFound in the order that the help names.
func TestTokenIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flagged, named := file("flagged", "ewt_flagged\n"), file("named", "ewt_named")
	for _, tc := range []struct {
		name, flag string
		env        map[string]string
		want       string // "" is refused
	}{
		{"the flag", flagged, map[string]string{"EXECWARDEN_TOKEN_FILE": named, "EXECWARDEN_TOKEN": "ewt_env"}, "ewt_flagged"},
		{"the file", "", map[string]string{"EXECWARDEN_TOKEN_FILE": named, "EXECWARDEN_TOKEN": "ewt_env"}, "ewt_named"},
		{"the environment", "", map[string]string{"EXECWARDEN_TOKEN": " ewt_env\n"}, "ewt_env"},
		{"a header of its own", "", map[string]string{"EXECWARDEN_TOKEN": "ewt_a\r\nX-Other: b"}, ""},
		{"an empty file", file("empty", "\n"), nil, ""},
	} {
		a := newApp(nil, io.Discard, io.Discard, func(name string) string { return tc.env[name] })
		a.flags.tokenFile = tc.flag
		got, err := a.token()
		if got.Reveal() != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", tc.name, got.Reveal(), err)
		}
		if err != nil && strings.Contains(err.Error(), "X-Other") {
			t.Errorf("%s: the error repeats the token", tc.name)
		}
	}
}
