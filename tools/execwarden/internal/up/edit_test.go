package up

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
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
	if _, err := w.Decide(t.Context(), a.Approval, a.Digest, true, ""); problem.CodeOf(err) != problem.Conflict {
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
