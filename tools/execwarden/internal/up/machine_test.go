package up

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/connect"
	"github.com/execwarden/execwarden/services/environments/shimkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// outpost is a customer's machine: a connector with a home and a policy of its own.
type outpost struct {
	w    *world
	cfg  connect.Config
	stop func()

	replaced bool // another machine takes its place
}

// newOutpost makes an environment, and enrols a machine as it the way a person would.
func (w *world) newOutpost(name, policy string) *outpost {
	w.t.Helper()
	return w.newOutpostOf(environment.Host, name, policy)
}

func (w *world) newOutpostOf(driver environment.Driver, name, policy string) *outpost {
	w.t.Helper()
	return w.newOutpostAt(shortDir(w.t), driver, name, policy)
}

// newOutpostIn is one whose home is a directory that is there.
func (w *world) newOutpostIn(home, name, policy string) *outpost {
	w.t.Helper()
	return w.newOutpostAt(home, environment.Host, name, policy)
}

func (w *world) newOutpostAt(home string, driver environment.Driver, name, policy string) *outpost {
	w.t.Helper()
	if err := w.PutEnvironment(w.t.Context(), id.Environment("env_"+name), driver); err != nil {
		w.t.Fatal(err)
	}
	e, err := w.CreateEnrolment(w.t.Context(), name, false)
	if err != nil {
		w.t.Fatal(err)
	}
	o := &outpost{w: w, cfg: connect.Config{Home: home, Policy: filepath.Join(home, "connector.yaml"), Shim: shimkit.BuildShim(w.t), Log: slog.New(slog.NewTextHandler(testLog{w.t}, nil))}}
	text := "volumes: " + filepath.Join(home, "volumes") + "\n" + policy
	if err := os.WriteFile(o.cfg.Policy, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if _, err := connect.Enrol(w.t.Context(), home, w.endpoints.API, e.Token); err != nil {
		w.t.Fatal(err)
	}
	o.start()
	w.t.Cleanup(func() { o.stop(); shimkit.EndAll(home) })
	return o
}

// start runs the connector until it is welcomed.
func (o *outpost) start() {
	o.w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}, 100), make(chan error, 1)
	o.cfg.Ready = func() { ready <- struct{}{} }
	go func() { ended <- connect.Run(ctx, o.cfg) }()
	o.stop = func() {
		cancel()
		if err := <-ended; err != nil && !(o.replaced && problem.CodeOf(err) == problem.Conflict) {
			o.w.t.Errorf("connector: %v", err)
		}
		ended <- nil
	}
	select {
	case <-ready:
	case err := <-ended:
		o.w.t.Fatalf("connector: %v", err)
	}
}

func (w *world) environment(name string) (out ask.Environment) {
	w.t.Helper()
	list, err := w.Environments(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list {
		if id.Name(e.Environment) == name {
			return e
		}
	}
	w.t.Fatalf("no environment %s", name)
	return out
}

// scripted runs an agent that makes these calls, one after the other, and gives its results.
func (w *world) scripted(name string, calls ...scriptmodel.Call) {
	w.t.Helper()
	s := scriptmodel.Script{Model: "scripted-" + name}
	for _, c := range calls {
		c.Tool = strings.ReplaceAll(c.Tool, ".", "__")
		s.Turns = append(s.Turns, scriptmodel.Turn{Text: "next", Calls: []scriptmodel.Call{c}})
	}
	s.Turns = append(s.Turns, scriptmodel.Turn{Text: "done"})
	model := sample.NewModel(s)
	if err := model.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = model.Close() })
	if err := w.PutAgent(w.t.Context(), agent.Defined{Agent: id.Agent("agt_" + name), Hosting: agent.Hosted, Body: agent.Body{Instructions: "Work on the machine."},
		Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-" + name, Private: []string{hostport(model.URL())}}}, ""); err != nil {
		w.t.Fatal(err)
	}
	if err := w.PutGrant(w.t.Context(), grant.Created{Grant: id.Grant("grt_" + name), Agent: id.Agent("agt_" + name), Selector: grant.Selector{Tool: "machine.*"}, Approval: grant.Never, Tainted: true}); err != nil {
		w.t.Fatal(err)
	}
}

// results starts a run and gives the results of its calls, in order.
func (w *world) results(agent string) (out []json.RawMessage, row ask.RunRow) {
	w.t.Helper()
	started, err := w.StartRun(w.t.Context(), agent, "go")
	if err != nil {
		w.t.Fatal(err)
	}
	row = w.endedAs(started.Run)
	buskit.Eventually(w.t, "the ledger has the run", func() bool {
		out = nil
		done := false
		events, err := w.Timeline(w.t.Context(), row.Run, client.Cursor{})
		if err != nil {
			return false
		}
		for _, e := range events.Events {
			switch envelope, err := e.Envelope(); {
			case err != nil:
				w.t.Fatal(err)
			case strings.HasPrefix(e.Kind, "call.") && e.Kind != "call.requested" && e.Kind != "call.admitted":
				out = append(out, envelope.Data)
			}
			done = done || strings.HasPrefix(e.Kind, "run.completed")
		}
		return done
	})
	return out, row
}

// resultOf reads the result of a call's outcome.
func resultOf[T any](t *testing.T, raw json.RawMessage) (out T) {
	t.Helper()
	var outcome struct {
		Body struct {
			Result T `json:"result"`
		} `json:"body"`
	}
	if err := json.Unmarshal(raw, &outcome); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return outcome.Body.Result
}

// The whole way: a machine enrols, is attached to an agent, and a run works on it.
func TestMachine(t *testing.T) {
	w := newWorld(t)
	w.newOutpost("box", "")
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "src/a.txt", "content": "one\ntwo\n"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "cat src/a.txt; echo oops >&2; cat /root/x; exit 7"}},
		scriptmodel.Call{Tool: "machine.grep", Args: map[string]string{"pattern": "^t.o$"}},
		scriptmodel.Call{Tool: "machine.read_file", Args: map[string]string{"path": "../../etc/passwd"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{}, Values: map[string]string{"argv": `["no-such-program"]`}},
	)
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	results, row := w.results("worker")
	if row.State != "completed" || len(results) != 5 {
		t.Fatalf("the run %+v, results %s", row, results)
	}
	if e := resultOf[machine.Exec](t, results[1]); e.Code == nil || *e.Code != 7 || e.Stdout != "one\ntwo\n" || !strings.Contains(e.Stderr, "oops") || !strings.Contains(e.Stderr, "denied") || e.Survivors != 0 {
		t.Errorf("the command %s", results[1])
	}
	for i, want := range map[int]string{2: `"line":2,"text":"two"`, 3: `"code":"denied"`, 4: `no such program`} {
		if !strings.Contains(string(results[i]), want) {
			t.Errorf("result %d %s has no %s", i, results[i], want)
		}
	}
	if e := w.environment("box"); len(e.Volumes) != 1 || e.Volumes[0].Attached == nil || e.Manifest == nil || !e.Manifest.Isolation.Seccomp {
		t.Errorf("the environment %+v", e)
	}
}

// Without a machine a call is refused and says what to do; with one that is away it waits, and is done once when that is back.
func TestMachineAway(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	w.scripted("worker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo x >>counter; wc -l <counter"}})
	results, _ := w.results("worker")
	if len(results) != 1 || !strings.Contains(string(results[0]), "execwarden env attach") {
		t.Fatalf("without an attachment: %s", results)
	}
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	o.stop()
	if _, err := w.StartRun(t.Context(), "worker", "go"); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the call is claimed", func() bool {
		page, err := w.Runs(t.Context(), 1, "")
		return err == nil && len(page.Runs) == 1 && page.Runs[0].Ended.IsZero() && page.Runs[0].Events >= 5
	})
	o.start()
	if row := w.ended(); row.State != "completed" {
		t.Fatalf("the run %+v", row)
	}
	raw, err := os.ReadFile(filepath.Join(o.cfg.Home, "volumes", "main", "counter"))
	if err != nil || string(raw) != "x\n" {
		t.Errorf("the command ran %q times: %v", raw, err)
	}
}

// A connector that ends in the middle of a command takes nothing with it: the command goes on, and the next life has its
// end and its output.
func TestConnectorEndsInTheMiddle(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	w.scripted("worker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo begun | tee -a log; while [ ! -e go ]; do sleep 0.05; done; echo ended"}})
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StartRun(t.Context(), "worker", "go"); err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(o.cfg.Home, "volumes", "main")
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(volume, name)); return err == nil }
	}
	buskit.Eventually(t, "the command runs", exists("log"))
	for range 3 {
		o.stop()
		o.start()
	}
	if err := os.WriteFile(filepath.Join(volume, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	row := w.ended()
	events, err := w.Timeline(t.Context(), row.Run, client.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Events {
		if envelope, err := e.Envelope(); err == nil && strings.HasPrefix(e.Kind, "call.finished") {
			got := resultOf[machine.Exec](t, envelope.Data)
			if got.Stdout != "begun\nended\n" || got.Reason != "exited" {
				t.Errorf("the command %+v", got)
			}
			// What it printed is stored, once, whichever life of the connector passed it on.
			var printed []byte
			page := ask.Output{}
			buskit.Eventually(t, "the output is stored", func() bool {
				page, err = w.Output(t.Context(), id.Call(got.Exec), page.Next, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range page.Pieces {
					printed = append(printed, p.Data...)
				}
				return page.End != nil
			})
			sum := sha256.Sum256(printed)
			if hex.EncodeToString(sum[:]) != got.SHA256 || page.End.SHA256 != got.SHA256 {
				t.Errorf("stored is %q, ended %+v", printed, page.End)
			}
			return
		}
	}
	for _, e := range events.Events {
		t.Logf("%s %s", e.Kind, e.Event)
	}
	t.Errorf("no result: %+v", row)
}

// A revocation kills what runs with everything that it began, also what left its session, and says that nothing is left.
func TestRevokedMachine(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	w.scripted("worker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{
		"command": "trap '' TERM; for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & done; touch runs; wait"}})
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StartRun(t.Context(), "worker", "go"); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(o.cfg.Home, "volumes", "main", "runs"))
		return err == nil
	})
	r, err := w.Release(t.Context(), "box", "main", true, "it was stolen")
	if err != nil {
		t.Fatal(err)
	}
	if r.Survivors != 0 || r.Killed < 4 {
		t.Errorf("revoked: %+v", r)
	}
	w.ended()
	if v := w.environment("box").Volumes[0]; v.Attached != nil || v.Ended == nil || v.Ended.How != volume.Revoked || v.Ended.Survivors != 0 {
		t.Errorf("the volume %+v", v)
	}
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Errorf("the volume is not free again: %v", err)
	}
}

// A token is good once. A machine that takes another's place ends that one; an environment that is removed lets nobody in.
func TestOneMachineAtATime(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	e, err := w.CreateEnrolment(t.Context(), "box", false)
	if problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a second machine may enrol without a word: %+v, %v", e, err)
	}
	if e, err = w.CreateEnrolment(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	home := shortDir(t)
	for name, token := range map[string]string{"nothing": "", "text": "hello", "a member's token": "ewt_x", "another environment's": strings.Replace(e.Token, ".box.", ".other.", 1), "another tenant's": strings.Replace(e.Token, "main", "b", 1)} {
		if _, err := connect.Enrol(t.Context(), home, w.endpoints.API, token); problem.CodeOf(err) != problem.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := connect.Enrol(t.Context(), home, w.endpoints.API, e.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := connect.Enrol(t.Context(), shortDir(t), w.endpoints.API, e.Token); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("a token is good twice: %v", err)
	}
	// Two programs with one identity: the newer counts, and the older ends.
	o.replaced = true
	twin := &outpost{w: w, cfg: o.cfg}
	twin.cfg.Home = home
	twin.cfg.Policy = filepath.Join(home, "connector.yaml")
	if err := os.WriteFile(twin.cfg.Policy, []byte("volumes: "+filepath.Join(home, "volumes")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shimkit.EndAll(home) })
	ended := make(chan error, 1)
	twin.start()
	older := twin.cfg
	older.Ready = nil
	twin.stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	welcomed := make(chan struct{}, 10)
	older.Ready = func() { welcomed <- struct{}{} }
	go func() { ended <- connect.Run(ctx, older) }()
	<-welcomed
	twin.start()
	t.Cleanup(func() { twin.stop() })
	if err := <-ended; problem.CodeOf(err) != problem.Conflict {
		t.Errorf("the older ends with %v", err)
	}
	buskit.Eventually(t, "the newer is online", func() bool { return w.environment("box").State == ask.Online })
	if _, err := w.RemoveEnvironment(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	list, err := w.Environments(t.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("after its removal: %+v, %v", list, err)
	}
}
