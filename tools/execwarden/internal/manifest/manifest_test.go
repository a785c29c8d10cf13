package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
)

func noEnv(string) string { return "" }

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHostileFiles are refused, quickly and in one piece.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	bomb := "kind: Trigger\nname: a\nx: &a [1,1]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1)
	}
	for name, text := range map[string]string{
		"aliases":         bomb,
		"a merge key":     "kind: Environment\nname: a\n<<: {driver: host}\n",
		"a tag":           "kind: Environment\nname: a\ndriver: !!binary aG9zdA==\n",
		"deep nesting":    "kind: Agent\nname: a\nmodel: " + strings.Repeat("[", 20_000),
		"a key twice":     "kind: Environment\nname: a\ndriver: host\ndriver: docker\n",
		"another type":    "kind: Environment\nname: a\ndriver: {x: y}\n",
		"too large":       "kind: Environment\nname: a\n#" + strings.Repeat("x", maxFile),
		"no text":         "\x00\x01\x02",
		"half a document": "kind: Environment\nname: \"a",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := Load([]string{write(t, text)}, noEnv)
			if code := problem.CodeOf(err); code != problem.Invalid && code != problem.TooLarge {
				t.Errorf("got %v, %v", set, err)
			}
		})
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here:", err)
	}
	// Opening it would wait for a writer, for ever.
	if _, err := Load([]string{pipe}, noEnv); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	const doc = "kind: Connection\nname: c\ntype: github\nurl: https://api.github.com\ncredential: "
	env := func(name string) string {
		return map[string]string{"TOKEN": "canary\n", "LONG": strings.Repeat("x", maxSecret+1)}[name]
	}
	set, err := Load([]string{write(t, doc+"{env: TOKEN}")}, env)
	if err != nil || set[0].Secret.Reveal() != "canary" {
		t.Fatalf("got %v, %v", set, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", set[0].Secret, set[0].Secret, *set[0].Secret); strings.Contains(text, "canary") {
		t.Errorf("it prints as %s", text)
	}
	for _, ref := range []string{"{env: UNSET}", "{env: LONG}", "{}", "{env: TOKEN, file: x}", "{file: /none}", "{value: canary}", "canary", "null", "[canary]"} {
		_, err := Load([]string{write(t, doc+ref)}, env)
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", ref, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error repeats the secret: %v", ref, err)
		}
	}
}

// TestEgress is of rules as they are written: the file says what is wrong, not the server.
func TestEgress(t *testing.T) {
	t.Parallel()
	const doc = "kind: Agent\nname: a\nmodel: {protocol: openai, url: http://x, name: y}\nruntime:\n  enabled: true\n  egress: "
	for rule, ok := range map[string]bool{
		"[{hosts: [a.example, '*.b.example:8443'], methods: [GET, POST], private: ['10.1.2.3:443'], response_bytes: 1000, request_bytes: 10, timeout_ms: 500, fetches: 3}]": true,
		"[{hosts: [a.example], response_bytes: 5242881}]": false, "[{hosts: [a.example], fetches: -1}]": false, "[{hosts: [a.example], timeout_ms: 10001}]": false,
		"[{hosts: ['https://a.example/']}]": false, "[{hosts: []}]": false, "[{hosts: [a.example], bytes: 1}]": false,
	} {
		set, err := Load([]string{write(t, doc+rule)}, noEnv)
		if (err == nil) != ok || err != nil && problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", rule, err)
		}
		if ok && set[0].Want.(agent.Defined).Runtime.Egress[0].TimeoutMS != 500 {
			t.Errorf("%+v", set[0].Want)
		}
	}
}

// TestLinesOfLaterDocuments are counted from the file's first line.
func TestLinesOfLaterDocuments(t *testing.T) {
	t.Parallel()
	_, err := Load([]string{write(t, "# first\n---\nkind: Environment\nname: a\ndriver: host\n---\n\nkind: Environment\nname: b\n\ndriver: vm\n")}, noEnv)
	if err == nil || !strings.Contains(err.Error(), "a.yaml:11: driver") {
		t.Errorf("got %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("kind: Grant\nname: g\nagent: a\ntool: a.b\napproval: never\n")
	f.Add("kind: Agent\nname: a\nmodel: {protocol: openai, url: http://x, name: y}\n---\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "a.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := Load([]string{file}, noEnv)
		if err != nil {
			return
		}
		for _, r := range set {
			if r.Name == "" || build[r.Kind] == nil || r.put == nil {
				t.Fatalf("%+v is half a thing", r)
			}
		}
	})
}
