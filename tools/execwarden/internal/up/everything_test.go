package up

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// everything is the reference MCP server of the protocol's own project, a real upstream that is not ours.
const everything = "@modelcontextprotocol/server-everything@2026.8.31"

// startEverything installs the server with npm and starts it, and gives its URL.
func startEverything(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir, everything).CombinedOutput(); err != nil {
		t.Fatalf("npm install %s: %v\n%s", everything, err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address) // an address that was listened on
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() }) // killed, as wanted
	buskit.Eventually(t, "the reference server listens", func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return "http://" + address + "/mcp"
}

// argumentsOfEverything gives each of the server's tools arguments; those it has and this does not name fail the test.
var argumentsOfEverything = map[string]scriptmodel.Call{
	"echo":                           {Args: map[string]string{"message": "hello"}},
	"get-annotated-message":          {Args: map[string]string{"messageType": "success"}, Values: map[string]string{"includeImage": "true"}},
	"get-env":                        {},
	"get-resource-links":             {Values: map[string]string{"count": "2"}},
	"get-resource-reference":         {Values: map[string]string{"resourceId": "1"}},
	"get-structured-content":         {Args: map[string]string{"location": "Chicago"}},
	"get-sum":                        {Values: map[string]string{"a": "19", "b": "23"}},
	"get-tiny-image":                 {},
	"gzip-file-as-resource":          {Args: map[string]string{"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8="}},
	"toggle-simulated-logging":       {},
	"toggle-subscriber-updates":      {},
	"trigger-long-running-operation": {Values: map[string]string{"duration": "1", "steps": "2"}},
	"simulate-research-query":        {Args: map[string]string{"topic": "locks"}}, // wants the tasks extension: the server refuses it without
}

// Every tool of the reference server is called through grants, and each call ends as what it is.
func TestEveryToolOfTheReferenceServer(t *testing.T) {
	url := startEverything(t)
	w := newWorld(t)
	var turn scriptmodel.Turn
	for name, c := range argumentsOfEverything {
		c.Tool = "everything__" + name
		turn.Calls = append(turn.Calls, c)
	}
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-everything", Turns: []scriptmodel.Turn{turn, {Text: "done"}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, err := range []error{
		w.PutConnection(t.Context(), connection.Defined{Connection: "con_everything", Type: connection.MCP, URL: url, Private: []string{hostport(url)}, Trusted: true}, ""),
		w.PutAgent(t.Context(), agent.Defined{Agent: "agt_caller", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Call everything."},
			Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-everything", Private: []string{hostport(model.URL())}}}, ""),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_everything", Agent: "agt_caller", Approval: grant.Never, Selector: grant.Selector{Tool: "everything.*"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) > 0
	})
	all, err := w.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range all[0].Tools {
		if _, ok := argumentsOfEverything[tool.Name]; !ok {
			t.Errorf("the server has a tool %s that this test does not call", tool.Name)
		}
	}
	if _, err := w.StartRun(t.Context(), "caller", "go"); err != nil {
		t.Fatal(err)
	}
	if r := w.ended(); r.State != "completed" {
		t.Fatalf("the run ended %s: %s", r.State, r.Message)
	}
	ended := map[string]string{}
	for _, kind := range []string{"call.finished", "call.failed", "call.unknown", "call.refused"} {
		page, err := w.Events(t.Context(), client.Filter{Kind: kind}, client.Cursor{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			envelope, err := e.Envelope()
			if err != nil {
				t.Fatal(err)
			}
			ev, err := envelope.Decode()
			if err != nil {
				t.Fatal(err)
			}
			switch ev := ev.(type) {
			case call.Finished:
				ended[strings.TrimPrefix(ev.Tool, "everything.")] = "finished " + string(ev.Body.Result)
			case call.Failed:
				ended[strings.TrimPrefix(ev.Tool, "everything.")] = "failed " + ev.Message
			default:
				t.Errorf("%s: %+v", kind, ev)
			}
		}
	}
	for name := range argumentsOfEverything {
		how := ended[name]
		if name == "simulate-research-query" {
			if how == "" {
				t.Errorf("%s has no outcome", name)
			}
			continue
		}
		if !strings.HasPrefix(how, "finished ") {
			t.Errorf("%s: %.300s", name, how)
		}
	}
	for name, want := range map[string]string{"echo": "hello", "get-sum": "42", "get-tiny-image": `"image"`, "get-structured-content": `"structuredContent"`, "get-resource-links": `"resource_link"`} {
		if !strings.Contains(ended[name], want) {
			t.Errorf("%s answered without %s: %.300s", name, want, ended[name])
		}
	}
}
