package up

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// A grant that nobody made yet, held against what was called; and what an agent could do, before it does.
func TestForesee(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver(guid)
	w.approve(w.waitingApproval())
	w.ended()
	began := time.Now().Add(-time.Hour)

	looser := grant.Created{Grant: "grt_comment", Agent: "agt_triage", Tainted: true, Approval: grant.Never,
		Selector: grant.Selector{Tool: "github.*", Repos: []string{"Codertocat/*"}}}
	s, err := w.Simulate(t.Context(), looser, began)
	if err != nil {
		t.Fatal(err)
	}
	if s.Looked != 3 || s.Differ != 1 || s.Changed[0].Tool != "github.add_issue_comment" || s.Changed[0].Now.Word != "held" || s.Changed[0].Then.Word != "allowed" {
		t.Errorf("a looser grant: %+v", s)
	}
	tighter := grant.Created{Grant: "grt_no-scripts", Agent: "agt_triage", Verdict: grant.Deny, Selector: grant.Selector{Tool: "runtime.*"},
		Condition: `args.source.contains("fetch")`}
	if s, err = w.Simulate(t.Context(), tighter, began); err != nil {
		t.Fatal(err)
	}
	if s.Differ != 1 || s.Changed[0].Then.Word != "refused" || s.Changed[0].Then.Grant != "grt_no-scripts" {
		t.Errorf("a tighter grant: %+v", s)
	}
	if s, err = w.Simulate(t.Context(), tighter, time.Now()); err != nil || s.Looked != 0 {
		t.Errorf("nothing was called since now: %+v, %v", s, err)
	}
	if _, err := w.Simulate(t.Context(), tighter, time.Now().Add(-31*24*time.Hour)); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("farther back than events are kept: %v", err)
	}

	words := func() map[string]string {
		t.Helper()
		plan, err := w.Access(t.Context(), "triage", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, r := range plan.Tools {
			out[r.Tool] = r.Word
		}
		return out
	}
	got := words()
	for tool, want := range map[string]string{"runtime.run_javascript": "allowed", "tickets.find_owner": "allowed", "tickets.create_ticket": "denied",
		"github.add_issue_comment": "held", "machine.exec": "denied"} {
		if got[tool] != want {
			t.Errorf("%s is %s, want %s", tool, got[tool], want)
		}
	}
	if err := w.PutGrant(t.Context(), tighter); err != nil {
		t.Fatal(err)
	}
	if got := words()["runtime.run_javascript"]; got != "depends" {
		t.Errorf("with a denial of some scripts, scripts are %s", got)
	}
	if _, err := w.Access(t.Context(), "nobody", "", nil); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("access of nobody: %v", err)
	}

	// What the agent's scripts may call, and as its model is told.
	for _, model := range []bool{false, true} {
		types, err := w.Types(t.Context(), "triage", model)
		if err != nil {
			t.Fatal(err)
		}
		if !types.Runtime || types.Tools != 2 || types.Bare+types.Left != 0 || !strings.Contains(types.Types, "\n  find_owner(args") ||
			!strings.Contains(types.Types, "\n  add_issue_comment(args: {") || strings.Contains(types.Types, "create_ticket") || strings.Contains(types.Types, "run_javascript") {
			t.Errorf("%+v", types)
		}
	}
	if _, err := w.Types(t.Context(), "nobody", false); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("types of nobody: %v", err)
	}

	// What would become of a task's calls, one by one, with the machine that it would have.
	if err := w.PutEnvironment(t.Context(), "env_builder", environment.Docker); err != nil {
		t.Fatal(err)
	}
	var calls []ask.PlannedCall
	wants := []string{"allowed", "held", "refused", "refused"}
	for _, c := range []string{"tickets.find_owner {}", `github.add_issue_comment {"owner":"Codertocat","repo":"Hello-World","issue_number":7,"body":"b"}`,
		`github.add_issue_comment {"owner":"evil","repo":"shop","issue_number":7,"body":"b"}`, "tickets.nosuch {}"} {
		tool, args, _ := strings.Cut(c, " ")
		calls = append(calls, ask.PlannedCall{Tool: tool, Args: json.RawMessage(args)})
	}
	plan, err := w.Access(t.Context(), "triage", "builder", calls)
	if err != nil || plan.Environment == nil || plan.Environment.Driver != environment.Docker || len(plan.Calls) != len(wants) {
		t.Fatalf("%+v, %v", plan, err)
	}
	for i, want := range wants {
		if got := plan.Calls[i].Decision; got.Word != want || got.Reason == "" {
			t.Errorf("%s %s: %+v, want %s", calls[i].Tool, calls[i].Args, got, want)
		}
	}
	if _, err := w.Access(t.Context(), "triage", "nosuch", nil); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("an environment that is none: %v", err)
	}
	if _, err := w.Access(t.Context(), "triage", "", make([]ask.PlannedCall, ask.MaxPlanned+1)); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("too many calls: %v", err)
	}
}

// Two members have to approve: one vote is not enough, the same member's second is none, and an auditor has none.
func TestQuorum(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	if err := w.PutGrant(t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_triage", Tainted: true, Approval: grant.Always, Quorum: 2,
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}}); err != nil {
		t.Fatal(err)
	}
	w.deliver(guid)
	a := w.waitingApproval()
	for range 2 {
		after, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true})
		if err != nil {
			t.Fatal(err)
		}
		if after.State != "waiting" || len(after.Votes) != 1 {
			t.Errorf("after one member's vote: %+v", ask.Approval{State: after.State, Votes: after.Votes})
		}
	}
	if n := w.github.Effects(); n != 0 {
		t.Errorf("%d comments by one of two votes", n)
	}
}

// A grant of two calls lets two of three runs comment.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	if err := w.PutGrant(t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_triage", Tainted: true, Approval: grant.Never, Limits: grant.Limits{Calls: 2},
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}}); err != nil {
		t.Fatal(err)
	}
	for i, guid := range []string{"aaaaaaaa-0001", "aaaaaaaa-0002", "aaaaaaaa-0003"} {
		w.deliver(guid)
		w.endedRuns(i + 1)
	}
	if n := w.github.Effects(); n != 2 {
		t.Errorf("%d comments under a grant of two calls", n)
	}
}
