package up

import (
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/grant"
)

// The main job, end to end: a webhook becomes a run, the run thinks, computes, asks, is held, acts once, and all of it
// is proven.
func TestHostedRun(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	if resp := w.deliver("72d3162e-cc78-11e3-81ab-4c9367dc0958"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the delivery is answered %s", resp.Status)
	}
	a := w.waitingApproval()
	if a.Tool != "github.add_issue_comment" || a.Agent != "agt_triage" || !strings.Contains(string(a.Body.Args), "Hello-World") {
		t.Errorf("the approval shows %+v", a)
	}
	if n := w.github.Effects(); n != 0 {
		t.Fatalf("%d comments before anybody approved", n)
	}
	w.approve(a)
	r := w.ended()
	if r.State != "completed" || r.Agent != "agt_triage" {
		t.Fatalf("the run ended %s: %s", r.State, r.Message)
	}
	if n := w.github.Effects(); n != 1 {
		t.Errorf("%d comments, want 1", n)
	}
	if !strings.Contains(w.github.Comments()[0], "documentation") {
		t.Errorf("comment %q", w.github.Comments()[0])
	}
	// GitHub sends the same delivery again: one run all the same.
	if resp := w.deliver("72d3162e-cc78-11e3-81ab-4c9367dc0958"); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the delivery again is answered %s", resp.Status)
	}
	page, err := w.Runs(t.Context(), 10, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Runs) != 1 {
		t.Errorf("%d runs, want 1", len(page.Runs))
	}
	v, err := w.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Verdict != "verified" || v.Leaves < 25 {
		t.Errorf("ledger: %+v", v)
	}
}
