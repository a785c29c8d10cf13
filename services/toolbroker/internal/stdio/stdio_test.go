package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
	"github.com/execwarden/execwarden/services/toolbroker/internal/stdio"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// mode makes this test's own program an MCP server, well-behaved or not.
const mode = "STDIO_TEST_MODE"

func TestMain(m *testing.M) {
	if as := os.Getenv(mode); as != "" {
		serve(as)
		return
	}
	goleak.VerifyTestMain(m)
}

func serve(as string) {
	switch as {
	case "sleep":
		time.Sleep(time.Hour)
	case "exit":
		return
	case "mute":
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.Sleep(time.Hour) // nor does it end when its input does
	case "garbage":
		for {
			fmt.Println(strings.Repeat("x", 1<<20))
		}
	case "endless line":
		for {
			fmt.Print(strings.Repeat("x", 1<<20))
		}
	case "deaf": // it reads no more than it has to
		in := bufio.NewReaderSize(os.Stdin, 1024)
		for {
			line, err := in.ReadBytes('\n')
			var m struct {
				ID     json.RawMessage
				Method string
			}
			switch _ = json.Unmarshal(line, &m); {
			case err != nil:
				return
			case m.Method == "initialize":
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`+"\n", m.ID)
			case m.Method == "notifications/initialized":
				time.Sleep(time.Hour)
			case m.ID != nil:
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			}
		}
	case "notifications":
		go func() {
			for {
				fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1<<16) + `"}}`)
			}
		}()
	}
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	add := func(name string, run func(context.Context, *sdk.CallToolRequest) string) {
		sdk.AddTool(server, &sdk.Tool{Name: name}, func(ctx context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: run(ctx, r)}}}, nil, nil
		})
	}
	add("env", func(context.Context, *sdk.CallToolRequest) string {
		dir, _ := os.Getwd()
		return dir + "\n" + strings.Join(os.Environ(), "\n")
	})
	add("boast", func(context.Context, *sdk.CallToolRequest) string {
		for range 500 {
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		return "done"
	})
	add("pid", func(context.Context, *sdk.CallToolRequest) string { return strconv.Itoa(os.Getpid()) })
	add("fork", func(context.Context, *sdk.CallToolRequest) string {
		self, _ := os.Executable()
		child := exec.Command(self)
		child.Env = []string{mode + "=sleep"}
		child.Stdout, child.Stderr = os.Stdout, os.Stderr // it holds on to everything
		if err := child.Start(); err != nil {
			return err.Error()
		}
		return strconv.Itoa(child.Process.Pid)
	})
	add("die", func(context.Context, *sdk.CallToolRequest) string { os.Exit(3); return "" })
	add("hang", func(ctx context.Context, _ *sdk.CallToolRequest) string { <-ctx.Done(); return "" })
	add("leak", func(context.Context, *sdk.CallToolRequest) string {
		secret := os.Getenv("TOKEN")
		fmt.Fprintf(os.Stderr, "using %s\nAuthorization: Bearer %s, and %q\n%s%s\n", secret, secret, secret, strings.Repeat("y", 1000), secret)
		fmt.Fprint(os.Stderr, strings.Repeat("z", 1<<20), secret, "\n")
		for i := range 5000 {
			fmt.Fprintln(os.Stderr, "line", i, secret)
		}
		return "done"
	})
	add("progress", func(ctx context.Context, r *sdk.CallToolRequest) string {
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2})
		return "done"
	})
	add("more", func(context.Context, *sdk.CallToolRequest) string {
		add := &sdk.Tool{Name: "another", InputSchema: json.RawMessage(`{"type":"object"}`)}
		server.AddTool(add, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return nil, nil })
		return "done"
	})
	_ = server.Run(context.Background(), &sdk.StdioTransport{})
}

const token = "canary/of+the=program"

type house struct {
	*mcp.Provider
	t       *testing.T
	mu      sync.Mutex
	logs    bytes.Buffer
	started int
	changed chan struct{}
}

func (h *house) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logs.Write(p)
}

func (h *house) text() string { h.mu.Lock(); defer h.mu.Unlock(); return h.logs.String() }

func start(t *testing.T, as string) *house {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, changed: make(chan struct{}, 100)}
	p := stdio.Program{Command: []string{self, "one argument"}, Dir: t.TempDir(), Env: map[string]string{mode: as, "LANG": "C.UTF-8"}, CredentialEnv: "TOKEN"}
	h.Provider = mcp.NewProgram(func(context.Context) (mcp.Program, error) {
		h.mu.Lock()
		h.started++
		h.mu.Unlock()
		return stdio.Start(p, vault.NewSecret(token), slog.New(slog.NewTextHandler(h, nil)))
	}, func() { h.changed <- struct{}{} })
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (h *house) call(ctx context.Context, tool string) (string, error) {
	r, err := h.Call(ctx, upstream.Call{Call: "call_1", Tool: tool, Args: json.RawMessage(`{}`)})
	var parts struct{ Content []struct{ Text string } }
	if err == nil {
		err = json.Unmarshal(r.Content, &parts)
	}
	if err != nil || len(parts.Content) == 0 {
		return "", err
	}
	return parts.Content[0].Text, nil
}

func (h *house) must(tool string) string {
	h.t.Helper()
	text, err := h.call(h.t.Context(), tool)
	if err != nil {
		h.t.Fatalf("%s: %v", tool, err)
	}
	return text
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 1 && syscall.Kill(n, 0) == nil
}

func TestProgram(t *testing.T) {
	t.Setenv("OF_THE_BROKER", "secret")
	h := start(t, "good")
	tools, err := h.Tools(t.Context())
	if err != nil || len(tools) != 9 {
		t.Fatalf("%v, %v", tools, err)
	}
	lines := strings.Split(h.must("env"), "\n")
	if dir := lines[0]; !strings.HasPrefix(dir, os.TempDir()) {
		t.Errorf("it runs in %s", dir)
	}
	for _, v := range lines[1:] {
		if name, value, _ := strings.Cut(v, "="); name != mode && name != "LANG" && (name != "TOKEN" || value != token) {
			t.Errorf("its environment has %s", v)
		}
	}
	if got := strings.Join(lines[1:], " "); !strings.Contains(got, "TOKEN="+token) || !strings.Contains(got, "LANG=C.UTF-8") {
		t.Errorf("its environment is %s", got)
	}
	pid := h.must("pid")
	if n, err := syscall.Getpgid(atoi(pid)); err != nil || strconv.Itoa(n) != pid {
		t.Errorf("its group is %d, %v", n, err)
	}
	var heard []upstream.News
	if _, err := h.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "progress", Args: json.RawMessage(`{}`), News: func(n upstream.News) { heard = append(heard, n) }}); err != nil || len(heard) != 1 || heard[0].Total != 2 {
		t.Errorf("%+v, %v", heard, err)
	}
	h.must("more")
	<-h.changed
	if h.must("pid") != pid {
		t.Error("it was started again")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	buskit.Eventually(t, "it is gone", func() bool { return !alive(pid) })
	if _, err := h.call(t.Context(), "pid"); err == nil || h.started != 1 {
		t.Errorf("it is started after its end: %v", err)
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// A program that dies takes the calls that it had with it, and is started again for the next.
func TestProgramThatDies(t *testing.T) {
	h := start(t, "good")
	first := h.must("pid")
	if _, err := h.call(t.Context(), "die"); problem.CodeOf(err) != problem.Unavailable || !upstream.Ambiguous(err) {
		t.Errorf("%v, ambiguous %v", err, upstream.Ambiguous(err))
	}
	if second := h.must("pid"); second == first {
		t.Error("it is the same")
	}
	// What it forked ends with it, though it holds on to its output.
	child := h.must("fork")
	if !alive(child) {
		t.Fatal("there is no child")
	}
	if _, err := h.call(t.Context(), "die"); err == nil {
		t.Error("it lives")
	}
	buskit.Eventually(t, "the child is gone", func() bool { return !alive(child) })
	child = h.must("fork")
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	buskit.Eventually(t, "the child is gone", func() bool { return !alive(child) })
}

// Hostile programs end, cost a bounded amount of memory, and are told by what they did.
func TestHostilePrograms(t *testing.T) {
	for as, code := range map[string]problem.Code{"exit": problem.Unavailable, "garbage": problem.Unavailable, "endless line": problem.Unavailable, "mute": problem.Unavailable} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			h := start(t, as)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := h.call(ctx, "pid"); problem.CodeOf(err) != code || upstream.Ambiguous(err) {
				t.Errorf("%v", err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("never answers", func(t *testing.T) {
		t.Parallel()
		h := start(t, "good")
		pid := h.must("pid")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := h.call(ctx, "hang"); err == nil || !upstream.Ambiguous(err) {
			t.Errorf("%v", err)
		}
		if h.must("pid") != pid {
			t.Error("others lost their program by it")
		}
	})
	t.Run("notifications without end", func(t *testing.T) {
		t.Parallel()
		h := start(t, "notifications")
		if text, err := h.call(t.Context(), "pid"); err != nil || text == "" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A program that says again and again that its tools changed is believed now and then.
func TestChangesWithoutEnd(t *testing.T) {
	h := start(t, "good")
	h.must("boast")
	h.must("pid")
	buskit.Eventually(t, "it is told", func() bool { return len(h.changed) > 0 })
	if n := len(h.changed); n > 20 {
		t.Errorf("500 changes are told %d times", n)
	}
}

// A program that does not read holds nobody for good: it is ended, and the next call starts it again.
func TestProgramThatDoesNotRead(t *testing.T) {
	t.Cleanup(stdio.WriteWithin(500 * time.Millisecond))
	h := start(t, "deaf")
	args := json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	for n := range 2 {
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				if _, err := h.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "x", Args: args}); problem.CodeOf(err) == problem.Internal || err == nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		h.mu.Lock()
		if h.started <= n {
			t.Error("the one that did not read was asked again")
		}
		h.mu.Unlock()
	}
}

// What it writes to standard error is logged in part, and never with its credential.
func TestStandardError(t *testing.T) {
	h := start(t, "good")
	h.must("leak")
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	logs := h.text()
	if !strings.Contains(logs, "using [redacted]") || strings.Contains(logs, token) || strings.Contains(logs, "canary") {
		t.Errorf("%.2000s", logs)
	}
	if n := strings.Count(logs, "a program says"); n == 0 || n > 100 || len(logs) > 100<<10 {
		t.Errorf("%d lines, %d bytes", n, len(logs))
	}
}

// A program ends with the broker, even when that is killed.
func TestProgramEndsWithTheBroker(t *testing.T) {
	if os.Getenv("STDIO_TEST_BROKER") != "" {
		h := start(t, "good")
		fmt.Println("pids", h.must("pid"))
		time.Sleep(time.Hour)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	broker := exec.Command(self, "-test.run", "^TestProgramEndsWithTheBroker$", "-test.v")
	broker.Env = append(os.Environ(), "STDIO_TEST_BROKER=1")
	broker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := broker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	for in := bufio.NewScanner(out); pid == "" && in.Scan(); {
		if _, after, ok := strings.Cut(in.Text(), "pids "); ok {
			pid = after
		}
	}
	if !alive(pid) {
		t.Fatalf("the program %q does not run", pid)
	}
	if err := broker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = broker.Wait()
	buskit.Eventually(t, "the program is gone", func() bool { return !alive(pid) })
}

func TestLoad(t *testing.T) {
	load := func(text string) (stdio.Programs, error) {
		path := filepath.Join(t.TempDir(), "programs.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return stdio.Load(path)
	}
	good := "programs:\n  tickets:\n    command: [/usr/bin/tickets, --stdio]\n    dir: /var/lib/tickets\n    env: {LANG: C.UTF-8}\n    credential_env: TOKEN\n    tenants: [tnt_main]\n"
	programs, err := load(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant id.Tenant
		url    string
		ok     bool
	}{{"tnt_main", "stdio:tickets", true}, {"tnt_other", "stdio:tickets", false}, {"tnt_main", "stdio:other", false}, {"tnt_main", "stdio:", false}, {"tnt_main", "stdio:/bin/sh", false}} {
		if p, err := programs.Find(c.tenant, c.url); (err == nil) != c.ok || c.ok && p.Command[1] != "--stdio" {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
	if none, err := stdio.Load(""); err != nil || len(none) != 0 {
		t.Errorf("no file: %v, %v", none, err)
	}
	for name, text := range map[string]string{
		"a relative command": "programs: {a: {command: [sh]}}", "no command": "programs: {a: {dir: /}}", "a relative dir": "programs: {a: {command: [/bin/sh], dir: x}}",
		"an unknown field": "programs: {a: {command: [/bin/sh], shell: true}}", "a bad name": "programs: {A_b: {command: [/bin/sh]}}",
		"a bad variable": "programs: {a: {command: [/bin/sh], env: {\"A=B\": x}}}", "a variable twice": "programs: {a: {command: [/bin/sh], env: {T: x}, credential_env: T}}",
		"a bad tenant": "programs: {a: {command: [/bin/sh], tenants: [\"*\"]}}", "no YAML": "{",
	} {
		if _, err := load(text); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := stdio.Load("/no/such/file"); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("%v", err)
	}
}
