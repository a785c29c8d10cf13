package boot_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	Name string `name:"bus_url" default:"standard" help:"where the bus is"`
}

type settings struct {
	inner
	Life  time.Duration `name:"life" default:"30s" help:"how long"`
	Many  int           `name:"many" default:"4"`
	Weak  bool          `name:"weak" default:"false"`
	Plain string        `name:"plain"`
	Other string        // of the program itself
}

func load(t *testing.T, file string, env map[string]string, args ...string) (settings, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	var s settings
	err := boot.Load("program", args, func(name string) string { return env[name] }, &s, io.Discard)
	return s, err
}

func TestPrecedence(t *testing.T) {
	file := "bus_url: file\nlife: 1m\nmany: 7\nweak: true\nplain: p\n"
	env := map[string]string{"EXECWARDEN_BUS_URL": "env", "EXECWARDEN_LIFE": "2m", "BUS_URL": "no", "EXECWARDEN_OTHER": "no"}
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		args []string
		want settings
	}{
		"defaults":           {"", nil, nil, settings{inner{"standard"}, 30 * time.Second, 4, false, "", ""}},
		"the file":           {file, nil, nil, settings{inner{"file"}, time.Minute, 7, true, "p", ""}},
		"the environment":    {file, env, nil, settings{inner{"env"}, 2 * time.Minute, 7, true, "p", ""}},
		"flags":              {file, env, []string{"--bus-url", "flag", "--life=3m", "--weak=false"}, settings{inner{"flag"}, 3 * time.Minute, 7, false, "p", ""}},
		"one dash":           {"", nil, []string{"-many", "9"}, settings{inner{"standard"}, 30 * time.Second, 9, false, "", ""}},
		"the last of a flag": {"", nil, []string{"--many", "9", "--many", "10"}, settings{inner{"standard"}, 30 * time.Second, 10, false, "", ""}},
	} {
		if got, err := load(t, c.file, c.env, c.args...); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		args []string
		says string
	}{
		"an unknown flag":             {"", nil, []string{"--buss-url", "x"}, "buss-url"},
		"a word":                      {"", nil, []string{"serve"}, "serve"},
		"a flag of the file's name":   {"", nil, []string{"--bus_url", "x"}, "bus_url"},
		"an unknown key":              {"buss_url: x\n", nil, nil, "buss_url"},
		"a key twice":                 {"many: 1\nmany: 2\n", nil, nil, "many"},
		"a list":                      {"many: [1]\n", nil, nil, "many"},
		"nothing for a key":           {"many:\n", nil, nil, "many"},
		"no YAML":                     {"{", nil, nil, "config"},
		"an array":                    {"- many\n", nil, nil, "config"},
		"text for a number":           {"", nil, []string{"--many", "lots"}, "--many"},
		"half a number":               {"many: 1.5\n", nil, nil, "many"},
		"text for a truth":            {"", map[string]string{"EXECWARDEN_WEAK": "maybe"}, nil, "EXECWARDEN_WEAK"},
		"a number for a time":         {"life: 30\n", nil, nil, "life"},
		"a file that is not there":    {"", nil, []string{"--config", "/no/such/file"}, "/no/such/file"},
		"a file in the environment":   {"", map[string]string{"EXECWARDEN_CONFIG": "/no/such/file"}, nil, "/no/such/file"},
		"a file that is not a file":   {"", nil, []string{"--config", "/"}, "cannot be read"},
		"a file over its limit":       {strings.Repeat("# \n", 400_000), nil, nil, "1 MiB"},
		"a flag that wants its value": {"", nil, []string{"--many"}, "many"},
	} {
		got, err := load(t, c.file, c.env, c.args...)
		if problem.CodeOf(err) != problem.Invalid || problem.ExitCode(err) != 2 || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var out bytes.Buffer
	var s settings
	if err := boot.Load("program", []string{"--help"}, os.Getenv, &s, &out); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: %v", err)
	}
	for _, want := range []string{"-bus-url", "where the bus is (default standard)", "-config"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help has no %s:\n%s", want, &out)
		}
	}
}

func TestHealth(t *testing.T) {
	h := boot.NewHealth()
	broken := errors.New("password hunter2")
	var failing error
	h.Check("view", func(context.Context) error { return failing })
	h.Check("slow", func(ctx context.Context) error {
		if failing == nil {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	server := httptest.NewServer(boot.OpsHandler(prometheus.NewRegistry(), h))
	defer server.Close()
	client := server.Client()
	get := func(path string) (int, string) {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	h.Tell("kernel", "old")
	if code, body := get("/readyz"); code != 200 || !strings.Contains(body, `"ready":true`) || !strings.Contains(body, `"facts":{"kernel":"old"}`) {
		t.Errorf("ready: %d %s", code, body)
	}
	failing = broken
	code, body := get("/readyz")
	if code != 503 || !strings.Contains(body, `"view":{"code":"internal"`) || !strings.Contains(body, `"slow":{"code":"timeout"`) || strings.Contains(body, "hunter2") {
		t.Errorf("not ready: %d %s", code, body)
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/": 404, "/debug/pprof/": 404} {
		if code, _ := get(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	resp, err := client.Post(server.URL+"/readyz", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("POST: %s", resp.Status)
	}
}

// A server that is told to end takes no more requests and answers those that it has.
func TestServeDrains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived, told, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- boot.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-r.Context().Done() // a long answer learns of the end
			close(told)
			<-release
			fmt.Fprint(w, "the whole answer")
		}), slog.New(slog.DiscardHandler))
	}()
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	answered := make(chan string, 1)
	go func() {
		resp, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		answered <- string(raw)
	}()
	<-arrived
	cancel()
	<-told
	select {
	case err := <-ended:
		t.Fatalf("it ended with a request open: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if resp, err := client.Get("http://" + l.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("it takes requests while it ends")
	}
	close(release)
	if got := <-answered; got != "the whole answer" {
		t.Error(got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServeTellsWhatBreaksIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := boot.Serve(t.Context(), l, http.NotFoundHandler(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

func TestLogs(t *testing.T) {
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}, {"", ""}} {
		if _, err := boot.NewLogger(io.Discard, bad[0], bad[1]); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
	var out bytes.Buffer
	log, err := boot.NewLogger(&out, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	id := trace.TraceID{1, 2, 3}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}}))
	log.With("a", 1).WithGroup("g").WarnContext(ctx, "heard")
	log.Info("quiet")
	if line := out.String(); !strings.Contains(line, id.String()) || strings.Contains(line, "quiet") || strings.Count(line, "\n") != 1 {
		t.Error(line)
	}
}

func TestLoadRoot(t *testing.T) {
	if key, err := boot.LoadRoot(""); err != nil || key != nil {
		t.Errorf("no file: %v, %v", key, err)
	}
	good := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for text, ok := range map[string]bool{good: true, " " + good + "\n": true, good[:40]: false, "!!": false, good + good: false} {
		path := filepath.Join(t.TempDir(), "root")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := boot.LoadRoot(path); (err == nil) != ok || ok && len(key) != 32 {
			t.Errorf("%q: %v, %v", text, key, err)
		}
	}
	if _, err := boot.LoadRoot("/no/such/file"); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("%v", err)
	}
}
