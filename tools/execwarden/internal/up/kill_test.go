package up

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/command"
	"github.com/execwarden/execwarden/tools/sample/fakegithub"
	"github.com/execwarden/execwarden/tools/sample/webhook"
)

// childVariable makes this test program be execwarden up on the named directory, so that it can be killed.
const childVariable = "EXECWARDEN_TEST_UP"

// cliVariable makes this test program the execwarden command.
const cliVariable = "EXECWARDEN_TEST_CLI"

// killsVariable says how often TestKilledAtAnyMoment kills. Default 3; `make chaos` asks for 20.
const killsVariable = "EXECWARDEN_TEST_KILLS"

func TestMain(m *testing.M) {
	if os.Getenv(cliVariable) != "" {
		os.Exit(command.Main())
	}
	if dir := os.Getenv(childVariable); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := Run(ctx, Config{DataDir: dir, Listen: "127.0.0.1:0", HooksListen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
			SyncInterval: time.Minute, WorkerPath: os.Getenv(childVariable + "_WORKER"), ApprovalLife: time.Hour, LogFormat: "text", LogLevel: "warn"}, os.Stderr)
		os.Exit(problem.ExitCode(err))
	}
	goleak.VerifyTestMain(m)
}

// child is execwarden up in a process of its own.
type child struct {
	cmd  *exec.Cmd
	data string
}

func (w *world) spawn(worker string) *child {
	w.t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), data: filepath.Join(w.dir, "data")}
	c.cmd.Env = append(os.Environ(), childVariable+"="+c.data, childVariable+"_WORKER="+worker)
	c.cmd.Stderr = testLog{w.t}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // killed, as wanted
	_ = os.Remove(filepath.Join(c.data, endpointsFile))
}

func (w *world) awaitChild(c *child) {
	w.t.Helper()
	buskit.Eventually(w.t, "execwarden is up", func() bool {
		e, err := ReadEndpoints(c.data)
		w.endpoints = e
		return err == nil && e.PID == c.cmd.Process.Pid
	})
	w.connect()
}

// The whole process is killed at random moments of a run. After each restart the run goes on, and in the end GitHub
// holds exactly one comment and the ledger is whole.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 3
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	worker := workerkit.BuildWorker(t)
	w := newWorldAround(t)
	c := w.spawn(worker)
	t.Cleanup(func() { c.kill(t) })
	w.awaitChild(c)
	w.configure(grant.Never)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	hit := 0
	for i := range kills {
		w.deliverUntilTaken(fmt.Sprintf("%08d-cc78-11e3-81ab-4c9367dc0958", i))
		// The moment is random, and so is where it hits; a run takes some 100 ms here.
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		c.kill(t)
		if w.github.Effects() == i {
			hit++
		}
		c = w.spawn(worker)
		w.awaitChild(c)
		buskit.Eventually(t, fmt.Sprintf("run %d ends after kill", i+1), func() bool {
			page, err := w.Runs(t.Context(), 200, "")
			if err != nil || len(page.Runs) != i+1 {
				return false
			}
			for _, r := range page.Runs {
				if r.State == "failed" {
					t.Fatalf("run %s failed: %s", r.Run, r.Message)
				}
				if r.Ended.IsZero() {
					return false
				}
			}
			return true
		})
		if n := w.github.Effects(); n != i+1 {
			t.Fatalf("%d comments after %d runs", n, i+1)
		}
	}
	t.Logf("%d of %d kills came before the comment was made", hit, kills)
	w.mustVerify()
}

// The two moments that look alike to the broker: killed while GitHub has the request, before it had its effect and
// after. Both ways there is one comment in the end, and the second attempt knows which it was.
func TestKilledDuringTheEffect(t *testing.T) {
	worker := workerkit.BuildWorker(t)
	for name, after := range map[string]bool{"before the effect": false, "after the effect": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorldAround(t)
			c := w.spawn(worker)
			t.Cleanup(func() { c.kill(t) })
			w.awaitChild(c)
			w.configure(grant.Never)
			reached, never := make(chan struct{}), make(chan struct{})
			w.github.Inject(fakegithub.Fault{Method: http.MethodPost, AfterEffect: after, Reached: func() { close(reached) }, Until: never, Abort: true})
			w.deliverUntilTaken(guid)
			<-reached
			c.kill(t)
			c = w.spawn(worker)
			w.awaitChild(c)
			if r := w.ended(); r.State != "completed" {
				t.Fatalf("the run ended %s: %s", r.State, r.Message)
			}
			if n := w.github.Effects(); n != 1 {
				t.Errorf("%d comments, want 1", n)
			}
			page, err := w.Events(t.Context(), client.Filter{Kind: "call.finished"}, client.Cursor{})
			if err != nil {
				t.Fatal(err)
			}
			recovered := false
			for _, e := range page.Events {
				envelope, err := e.Envelope()
				if err != nil {
					t.Fatal(err)
				}
				if ev, err := envelope.Decode(); err == nil && ev.(call.Finished).Recovered {
					recovered = true
				}
			}
			if recovered != after {
				t.Errorf("recovered by a probe: %v, want %v", recovered, after)
			}
			w.mustVerify()
		})
	}
}

// deliverUntilTaken does what a person does who sees a failed delivery: sends it again, under the same id.
func (w *world) deliverUntilTaken(guid string) {
	w.t.Helper()
	buskit.Eventually(w.t, "the delivery is taken", func() bool {
		resp, err := webhook.Deliver(w.t.Context(), http.DefaultClient, webhook.Delivery{
			URL: w.endpoints.Hooks + "/hooks/tnt_main/hook_github", Secret: hookSecret, Event: "issues", ID: guid, HookID: "1",
			Body: webhook.Payload(webhook.IssuesOpened),
		})
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusAccepted
	})
}
