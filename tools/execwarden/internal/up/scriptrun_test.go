package up

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// cli is one run of the execwarden command against the world.
type cli struct {
	cmd            *exec.Cmd
	stdout, stderr heardText
}

// heardText is what a command says, also while it says it.
type heardText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heardText) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heardText) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

func (w *world) command(stdin string, args ...string) *cli {
	w.t.Helper()
	c := &cli{cmd: exec.Command(os.Args[0], args...)}
	c.cmd.Env = append(os.Environ(), cliVariable+"=1", "EXECWARDEN_URL="+w.endpoints.API, "EXECWARDEN_TOKEN_FILE="+w.endpoints.TokenFile)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = strings.NewReader(stdin), &c.stdout, &c.stderr
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// code waits for the command's end.
func (c *cli) code(t *testing.T) int {
	t.Helper()
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// started is the run that the command says it started.
func (c *cli) started(t *testing.T) id.Run {
	t.Helper()
	_, rest, _ := strings.Cut(c.stderr.String(), "started run_")
	name, _, ok := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("no run was started:\n%s", &c.stderr)
	}
	return id.Run("run_" + name)
}

// A member runs scripts as an agent from the command line: what they see, what is recorded, and how the command ends.
func TestScriptRunCommand(t *testing.T) {
	m, w := newMarks(t), newWorld(t)
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-marks", Turns: []scriptmodel.Turn{{Text: "no model is asked"}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	w.defineMarks(m, model)
	if err := w.PutAgent(t.Context(), agent.Defined{Agent: "agt_idle", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Nothing."}, Runtime: agent.Runtime{Enabled: true},
		Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-marks", Private: []string{hostport(model.URL())}}}, ""); err != nil {
		t.Fatal(err)
	}

	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "report.ts")
		if err := os.WriteFile(file, []byte("const n: number = 6;\nconsole.log('before', n);\nawait tools.marks.mark({i: n});\nconsole.warn('after');\nreturn {n, twice: n * 2};\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := w.command("", "script", "run", file, "--agent", "marker")
		if code := c.code(t); code != 0 || c.stdout.String() != "{\"n\":6,\"twice\":12}\n" {
			t.Errorf("code %d, %q\n%s", code, &c.stdout, &c.stderr)
		}
		for _, want := range []string{"console.log: before 6\n", "console.warn: after\n", "agt_marker is to run a person's script report.ts", "marks.mark {\"i\":6}", "isolation "} {
			if !strings.Contains(c.stderr.String(), want) {
				t.Errorf("standard error has no %q:\n%s", want, &c.stderr)
			}
		}
		if n := strings.Count("\n"+c.stderr.String(), "\nconsole."); n != 2 {
			t.Errorf("%d console lines, want each once:\n%s", n, &c.stderr)
		}
		if effects, _ := m.count(); effects != 1 {
			t.Errorf("%d effects", effects)
		}
	})

	t.Run("input", func(t *testing.T) {
		c := w.command("return [input, await tools.marks.mark({i: input.text.length})][0]", "script", "run", "-", "--agent", "marker", "--arg", "text=<é> =", "--arg", "b=")
		if code := c.code(t); code != 0 || c.stdout.String() != "{\"b\":\"\",\"text\":\"<é> =\"}\n" {
			t.Errorf("code %d, %q\n%s", code, &c.stdout, &c.stderr)
		}
	})

	t.Run("standard input, as JSON", func(t *testing.T) {
		c := w.command("return 'text'", "script", "run", "-", "--agent", "marker", "-o", "json")
		code := c.code(t)
		var got struct{ Run, State, Value, Isolation string }
		if err := json.Unmarshal([]byte(c.stdout.String()), &got); err != nil || code != 0 || got.State != "completed" || got.Value != "text" || got.Isolation == "" || got.Run == "" {
			t.Errorf("code %d, %v, %+v: %s", code, err, got, &c.stdout)
		}
	})

	for name, x := range map[string]struct {
		source, agent, want string
		code                int
	}{
		"it throws":           {"\nthrow new Error('bad luck')", "marker", "exception: bad luck at line 2", 1},
		"it takes too long":   {"for(;;){}", "marker", "cpu_limit", 1},
		"a call is refused":   {"await tools.marks.none({})", "marker", "tool_unknown", 1},
		"no grant":            {"return 1", "idle", "no active grant", 3},
		"there is no agent":   {"return 1", "nobody", "there is no agent nobody", 4},
		"nothing":             {"", "marker", "1 to 65536 bytes", 2},
		"too much":            {strings.Repeat(" ", 64<<10) + "1", "marker", "1 to 65536 bytes", 2},
		"somebody has to say": {"await tools.marks.seal({i: 1})", "marker", "execwarden approvals show apr_", 5},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.command(x.source, "script", "run", "-", "--agent", x.agent, "--no-approve")
			if code := c.code(t); code != x.code || !strings.Contains(c.stderr.String(), x.want) || c.stdout.String() != "" {
				t.Errorf("code %d, want %d and %q; %q\n%s", code, x.code, x.want, &c.stdout, &c.stderr)
			}
		})
	}

	t.Run("it waits for a person", func(t *testing.T) {
		w.approveAll() // what the command above left
		c := w.command("await tools.marks.seal({i: 2}); return 'sealed'", "script", "run", "-", "--agent", "marker")
		var a ask.Approval
		buskit.Eventually(t, "the command names its approval", func() bool { // that of another may be listed still
			list, err := w.Approvals(t.Context(), true)
			i := slices.IndexFunc(list, func(a ask.Approval) bool {
				return strings.Contains(c.stderr.String(), "execwarden approvals approve|deny "+string(a.Approval))
			})
			if i >= 0 {
				a = list[i]
			}
			return err == nil && i >= 0
		})
		w.approve(a)
		if code := c.code(t); code != 0 || c.stdout.String() != "sealed\n" {
			t.Errorf("code %d, %q\n%s", code, &c.stdout, &c.stderr)
		}
	})

	t.Run("interrupted", func(t *testing.T) {
		g := m.stopAt("mark 50", false)
		c := w.command("await tools.marks.mark({i: 50})", "script", "run", "-", "--agent", "marker")
		<-g.reached
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := c.code(t); code != 130 || !strings.Contains(c.stderr.String(), "is told to stop") {
			t.Errorf("code %d\n%s", code, &c.stderr)
		}
		close(g.until)
		if r := w.endedAs(c.started(t)); r.State != "cancelled" {
			t.Errorf("the run ended %s: %s", r.State, r.Message)
		}
	})

	t.Run("lines come as they are said", func(t *testing.T) {
		c := w.command("for (let i = 0;; i++) { console.log('tick', i); await new Promise((r) => setTimeout(r, 50)) }", "script", "run", "-", "--agent", "marker")
		buskit.Eventually(t, "a line is seen while the script runs", func() bool { return strings.Contains(c.stderr.String(), "console.log: tick ") })
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := c.code(t); code != 130 {
			t.Errorf("code %d\n%s", code, &c.stderr)
		}
	})

	t.Run("asked twice under one key", func(t *testing.T) {
		ask := func(source string) (status int, started ask.Started) {
			body, err := json.Marshal(map[string]string{"source": source})
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.endpoints.API+"/v1/agents/marker/scripts", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			token, err := os.ReadFile(w.endpoints.TokenFile)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", "k1")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_ = json.NewDecoder(resp.Body).Decode(&started) // of a problem, nothing that counts
			return resp.StatusCode, started
		}
		_, one := ask("await tools.marks.mark({i: 70})")
		status, two := ask("await tools.marks.mark({i: 70})")
		if status != 200 || one.Run == "" || one != two {
			t.Errorf("%d, %+v and %+v", status, one, two)
		}
		if status, _ := ask("await tools.marks.mark({i: 71})"); status != http.StatusConflict {
			t.Errorf("another script under the same key: %d", status)
		}
		w.endedAs(one.Run)
	})
	if _, doubled := m.count(); len(doubled) > 0 {
		t.Errorf("%v more than once", doubled)
	}
	w.mustVerify()
}
