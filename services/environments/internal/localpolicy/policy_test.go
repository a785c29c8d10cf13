package localpolicy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// The file that init writes is a policy, and what is left out has its values.
func TestTemplate(t *testing.T) {
	for name, text := range map[string]string{"the template": string(localpolicy.Template), "nothing": "", "comments": "# mine\n"} {
		p, err := localpolicy.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p.MaxVolumes != 8 || p.Execs != 8 || !p.Shell || p.Network != localpolicy.Off || p.OrphanGrace != 15*time.Minute || len(p.MinIsolation) != 3 || p.Processes != 1024 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	p, err := localpolicy.Parse(localpolicy.TemplateFor("/srv/v"))
	if err != nil || p.Volumes != "/srv/v" {
		t.Errorf("%+v, %v", p, err)
	}
}

// What is not understood is refused: it might have been a limit.
func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":                 "volumes: [",
		"an unknown key":          "networks: off",
		"a key of another type":   "execs: many",
		"a relative directory":    "volumes: here",
		"the top":                 "volumes: /",
		"no volumes":              "max_volumes: 0",
		"no commands":             "execs: 0",
		"too many commands":       "execs: 1000",
		"a relative root":         "roots: [{path: data}]",
		"a root's unknown key":    "roots: [{path: /data, rw: true}]",
		"a relative program":      "programs: [git]\nshell: false",
		"a program by dots":       "programs: [/usr/bin/../bin/git]\nshell: false",
		"programs and a shell":    "programs: [/usr/bin/git]",
		"another network":         "network: some",
		"another isolation":       "min_isolation: [magic]",
		"a grace below nothing":   "orphan_grace: -1s",
		"a grace of days":         "orphan_grace: 48h",
		"hardly any process":      "processes: 1",
		"a thousand roots":        "roots:\n" + strings.Repeat("  - path: /x\n", 1000),
		"a user who is not there": "user: nobody-of-that-name",
		"every service":           "private_http: [{target: '*'}]",
		"every name of a port":    "private_http: [{target: '*:80'}]",
		"a service's metadata":    "private_http: [{target: 169.254.169.254}]",
		"its mapped metadata":     "private_http: [{target: '[::ffff:169.254.169.254]:80'}]",
		"no address":              "private_http: [{target: 0.0.0.0}]",
		"a service without name":  "private_http: [{methods: [GET]}]",
		"a path without scheme":   "private_http: [{target: a.internal/api}]",
		"another scheme":          "private_http: [{target: 'ftp://a.internal'}]",
		"a user in a target":      "private_http: [{target: 'http://u:p@a.internal/'}]",
		"a query in a target":     "private_http: [{target: 'http://a.internal/?a=b'}]",
		"dots in a target":        "private_http: [{target: 'http://a.internal/a/../b'}]",
		"another method":          "private_http: [{target: a.internal, methods: [CONNECT]}]",
		"a hundred services":      "private_http:\n" + strings.Repeat("  - target: a.internal\n", 100),
		"a bomb":                  "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nroots: *b",
	} {
		if name == "a user who is not there" && os.Geteuid() != 0 {
			continue // it is only looked up by root
		}
		if p, err := localpolicy.Parse([]byte(text)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// A file that others could write would let them in.
func TestWhoseFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "connector.yaml")
	if _, err := localpolicy.Load(path); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("none: %v", err)
	}
	if err := os.WriteFile(path, localpolicy.Template, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := localpolicy.Load(path); err != nil {
		t.Errorf("as it should be: %v", err)
	}
	for _, mode := range []os.FileMode{0o664, 0o646} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := localpolicy.Load(path); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a link": link, "a directory": dir} {
		if _, err := localpolicy.Load(path); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := localpolicy.Load(path); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("another's: %v", err)
		}
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, []byte(strings.Repeat("# x\n", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localpolicy.Load(big); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("too large: %v", err)
	}
}

// Every refusal names its side and its rule. That of programs is where they are started.
func TestRules(t *testing.T) {
	p, err := localpolicy.Parse([]byte("shell: false\nprograms: [/usr/bin/git]\nenv: [GOFLAGS, LD_LIBRARY_PATH]\nmin_isolation: [landlock, cgroup]"))
	if err != nil {
		t.Fatal(err)
	}
	all := environment.Isolation{NoNewPrivs: true, Landlock: 5, Seccomp: true, Cgroup: true, Network: true}
	for rule, err := range map[string]error{
		"shell": p.MayShell(), "env": p.MaySet("GIT_SSH"), "min_isolation": p.Isolated(environment.Isolation{Landlock: 5, Network: true}),
		"network": p.Isolated(environment.Isolation{Landlock: 5, Cgroup: true}),
	} {
		if problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "the machine's policy, rule "+rule) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	for what, err := range map[string]error{"PATH": p.MaySet("PATH"), "GOFLAGS": p.MaySet("GOFLAGS"), "a loader that is named": p.MaySet("LD_LIBRARY_PATH"), "all of it": p.Isolated(all)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	open, err := localpolicy.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if open.MaySet("ANYTHING") != nil || open.MaySet("LD_PRELOAD") == nil {
		t.Error("any variable means any, but for those that load other code")
	}
	if p.Manifest("linux/amd64", all).Policy == open.Manifest("linux/amd64", all).Policy {
		t.Error("two policies have one digest")
	}
}
