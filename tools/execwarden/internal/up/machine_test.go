package up

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
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
}

// newOutpost makes an environment, and enrols a machine as it the way a person would.
func (w *world) newOutpost(name, policy string) *outpost {
	w.t.Helper()
	if err := w.PutEnvironment(w.t.Context(), id.Environment("env_"+name), environment.Host); err != nil {
		w.t.Fatal(err)
	}
	e, err := w.CreateEnrolment(w.t.Context(), name, false)
	if err != nil {
		w.t.Fatal(err)
	}
	home := shortDir(w.t)
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
		if err := <-ended; err != nil {
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
	if _, err := w.StartRun(w.t.Context(), agent, "go"); err != nil {
		w.t.Fatal(err)
	}
	row = w.ended()
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

// The whole way: a machine enrols, is attached to an agent, and a run works on it.
func TestMachine(t *testing.T) {
	w := newWorld(t)
	o := w.newOutpost("box", "")
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.write_file", Args: map[string]string{"path": "src/a.txt", "content": "one\ntwo\n"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "cat src/a.txt; echo oops >&2; cat /root/x; exit 7"}},
		scriptmodel.Call{Tool: "machine.grep", Args: map[string]string{"pattern": "^t.o$"}},
		scriptmodel.Call{Tool: "machine.read_file", Args: map[string]string{"path": "../../etc/passwd"}},
	)
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	results, row := w.results("worker")
	for _, r := range results {
		t.Logf("%s", r)
	}
	if row.State != "completed" || len(results) != 4 {
		t.Fatalf("the run %+v, %d results", row, len(results))
	}
	_ = o
	_ = machine.Exec{}
}
