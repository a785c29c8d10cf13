package up

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// What a script reaches, end to end: a page, its tools, and the artifacts of its session. The page makes what follows
// wait for a person: a write of another script too, which knows the page only from an artifact. Without the page, the
// same grant needs nobody.
func TestWhatAScriptReaches(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	const comment = `await tools.github.add_issue_comment({owner: "Codertocat", repo: "Hello-World", issue_number: 1, body})`
	script := func(source string) scriptmodel.Turn {
		return scriptmodel.Turn{Calls: []scriptmodel.Call{{Tool: "runtime__run_javascript", Args: map[string]string{"source": source}}}}
	}
	run := func(name string, turns ...scriptmodel.Turn) id.Run {
		t.Helper()
		model := sample.NewModel(scriptmodel.Script{Model: "scripted-" + name, Turns: append(turns, scriptmodel.Turn{Text: `{{.Result "runtime__run_javascript"}}`})})
		if err := model.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = model.Close() })
		if err := w.PutAgent(t.Context(), agent.Defined{
			Agent: "agt_triage", Hosting: agent.Hosted, Body: agent.Body{Instructions: "x"},
			Model:   agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-" + name, Private: []string{hostport(model.URL())}},
			Runtime: agent.Runtime{Enabled: true, Egress: []agent.Egress{{Hosts: []string{hostport(w.page.URL())}, Private: []string{hostport(w.page.URL())}, Fetches: 2}}},
		}, ""); err != nil {
			t.Fatal(err)
		}
		started, err := w.StartRun(t.Context(), "triage", "go")
		if err != nil {
			t.Fatal(err)
		}
		return started.Run
	}
	if err := w.PutGrant(t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_triage", Approval: grant.Never,
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}}); err != nil {
		t.Fatal(err)
	}

	clean := run("clean", script(`const body = "clean"; await artifacts.put("note", body); `+comment+`; return (await tools.search("comment on an issue"))[0].name + " " + (await tools.describe("github.add_issue_comment")).types.includes("issue_number: number")`))
	if r := w.endedAs(clean); r.State != "completed" || w.github.Effects() != 1 {
		t.Fatalf("without a page: %s %s, %d comments", r.State, r.Message, w.github.Effects())
	}
	told, err := w.Events(t.Context(), client.Filter{Kind: "call.finished"}, client.Cursor{})
	if err != nil || !slices.ContainsFunc(told.Events, func(e client.Event) bool { return strings.Contains(string(e.Event), "github.add_issue_comment true") }) {
		t.Errorf("the script is not told of its tool: %v", err)
	}
	if value, kind, err := w.Artifact(t.Context(), string(clean), "note"); err != nil || string(value) != "clean" || kind != "text/plain; charset=utf-8" {
		t.Errorf("%q %s %v", value, kind, err)
	}

	page := run("page", script(fmt.Sprintf(`const r = await fetch(%q); await artifacts.put("page.md", await r.markdown()); return 1`, w.page.URL()+"/")),
		script(`const body = (await artifacts.get("page.md")).slice(0, 40); `+comment+`; return [(await artifacts.list()).map(a => a.name), body]`))
	held := w.waitingApproval()
	if held.Tool != "github.add_issue_comment" || w.github.Effects() != 1 {
		t.Errorf("%+v, %d comments", held, w.github.Effects())
	}
	w.approve(held)
	r := w.endedAs(page)
	if r.State != "completed" || w.github.Effects() != 2 || !strings.Contains(w.github.Comments()[1], "Example Inc. status") {
		t.Fatalf("with a page: %s %s, %q", r.State, r.Message, w.github.Comments())
	}
	kept, err := w.Artifacts(t.Context(), string(r.Run))
	if err != nil || !strings.HasPrefix(kept.Owner, "ses_") || len(kept.Artifacts) != 1 || kept.Artifacts[0].Name != "page.md" || !slices.Contains(kept.Artifacts[0].Taint, "fetch:"+hostport(w.page.URL())) {
		t.Errorf("%+v %v", kept, err)
	}
}
