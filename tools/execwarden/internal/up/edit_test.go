package up

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// A person edits what waits and approves the edit: that is what GitHub is sent, and the ledger has both versions.
func TestEditedRun(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver("72d3162e-cc78-11e3-81ab-4c9367dc0958")
	a := w.waitingApproval()
	var args map[string]any
	if err := json.Unmarshal(a.Body.Args, &args); err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(string(a.Body.Args), "Hello-World", "secrets", 1)
	if _, err := w.EditApproval(t.Context(), a.Approval, a.Digest, json.RawMessage(elsewhere), ""); problem.CodeOf(err) != problem.Denied {
		t.Fatalf("edited out of the grant: %v", err)
	}
	args["body"] = "written by a person <b>&"
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	edited, err := w.EditApproval(t.Context(), a.Approval, a.Digest, raw, "politer")
	if err != nil || edited.Digest == a.Digest || len(edited.Editors) != 1 {
		t.Fatalf("%+v, %v", edited, err)
	}
	if _, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true}); problem.CodeOf(err) != problem.Conflict {
		t.Fatalf("what waited before was approved: %v", err)
	}
	w.approve(edited)
	if r := w.ended(); r.State != "completed" {
		t.Fatalf("the run ended %s: %s", r.State, r.Message)
	}
	if got := w.github.Comments(); len(got) != 1 || !strings.Contains(got[0], "written by a person <b>&") {
		t.Errorf("%q", got)
	}
	for kind, want := range map[string]string{"call.requested": "documentation", "approval.edited": "written by a person", "call.admitted": "written by a person"} {
		page, err := w.Events(t.Context(), client.Filter{Kind: kind}, client.Cursor{})
		found := false
		for _, e := range page.Events {
			found = found || strings.Contains(string(e.Event), want)
		}
		if err != nil || !found {
			t.Errorf("no %s has %q, %v", kind, want, err)
		}
	}
}

// One approval for the rest of the run is enough for both of its comments, and for no other run's.
func TestApprovedForTheRun(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	comment := func(body string) scriptmodel.Turn {
		return scriptmodel.Turn{Calls: []scriptmodel.Call{{Tool: "github__add_issue_comment", Args: map[string]string{"owner": "Codertocat", "repo": "Hello-World", "body": body}, Values: map[string]string{"issue_number": "1"}}}}
	}
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-twice", Turns: []scriptmodel.Turn{comment("one"), comment("two"), {Text: "done"}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if err := w.PutAgent(t.Context(), agent.Defined{Agent: "agt_triage", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Comment twice."},
		Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-twice", Private: []string{hostport(model.URL())}}}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StartRun(t.Context(), "triage", "go"); err != nil {
		t.Fatal(err)
	}
	a := w.waitingApproval()
	if a.StartedBy != "mem_owner" {
		t.Errorf("started by %q", a.StartedBy)
	}
	if decided, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true, ForRun: true}); err != nil || !decided.ForRun {
		t.Fatalf("%+v, %v", decided, err)
	}
	if r := w.ended(); r.State != "completed" || w.github.Effects() != 2 {
		t.Fatalf("the run ended %s: %s, with %d comments", r.State, r.Message, w.github.Effects())
	}
	if all, err := w.Approvals(t.Context(), false); err != nil || len(all) != 1 {
		t.Errorf("%d approvals, %v", len(all), err)
	}
	if _, err := w.StartRun(t.Context(), "triage", "again"); err != nil {
		t.Fatal(err)
	}
	if again := w.waitingApproval(); again.Run == a.Run {
		t.Errorf("%+v", again)
	}
}
