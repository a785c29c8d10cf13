package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/execwarden/execwarden/libs/vault"
)

var update = flag.Bool("update", false, "write what the program says into the scripts' files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"execwarden": main})
}

// TestScripts runs the program itself against a double of the API. Beside testscript's own commands there are:
//
//	code N COMMAND...              runs it, which has to end with exactly this code
//	closedstdout COMMAND...        runs it with a standard output that nobody reads; it has to end with code 0
//	interrupt N TEXT COMMAND...    runs it, interrupts it once standard error has the text; it has to end with code N
//
// The requests that the double was sent are in the file requests, one per line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		UpdateScripts: *update,
		Dir:           filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			api := newDouble(filepath.Join(env.WorkDir, "requests"))
			env.Defer(api.Close)
			token := filepath.Join(env.WorkDir, "token")
			env.Setenv("EXECWARDEN_URL", api.URL)
			env.Setenv("EXECWARDEN_TOKEN_FILE", token)
			if _, err := vault.LoadMaster(filepath.Join(env.WorkDir, "master.key")); err != nil {
				return err
			}
			return os.WriteFile(token, []byte(ownerToken+"\n"), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":         code,
			"closedstdout": closedStdout,
			"interrupt":    interrupt,
		},
	})
}

func code(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	checkCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

func closedStdout(ts *testscript.TestScript, _ bool, args []string) {
	read, write, err := os.Pipe()
	ts.Check(err)
	ts.Check(read.Close())
	defer write.Close()
	cmd, stderr := prepare(ts, args)
	cmd.Stdout = write
	err = cmd.Run()
	ts.Check(os.WriteFile(ts.MkAbs("stderr"), stderr.Bytes(), 0o600))
	checkCode(ts, "0", err)
}

func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: interrupt N TEXT COMMAND...")
	}
	cmd, stderr := prepare(ts, args[2:])
	seen := make(chan struct{})
	cmd.Stderr = &watcher{to: stderr, text: args[1], seen: seen}
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		ts.Fatalf("it ended by itself: %v\n%s", err, stderr)
	case <-seen:
		ts.Check(cmd.Process.Signal(syscall.SIGINT))
	}
	err := <-ended
	ts.Check(os.WriteFile(ts.MkAbs("stderr"), stderr.Bytes(), 0o600))
	checkCode(ts, args[0], err)
}

func prepare(ts *testscript.TestScript, args []string) (*exec.Cmd, *bytes.Buffer) {
	path := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if at := filepath.Join(dir, args[0]); exec.Command(at).Err == nil {
			if _, err := os.Stat(at); err == nil {
				path = at
				break
			}
		}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"EXECWARDEN_URL", "EXECWARDEN_TOKEN_FILE", "HOME", "PATH"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

func checkCode(ts *testscript.TestScript, want string, err error) {
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("it does not run: %v", err)
	}
	if strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// watcher says when a text was written.
type watcher struct {
	to   *bytes.Buffer
	text string
	seen chan struct{}
	done bool
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if !w.done && strings.Contains(w.to.String(), w.text) {
		w.done = true
		close(w.seen)
	}
	return n, err
}
