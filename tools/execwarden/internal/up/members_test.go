package up

import (
	"net/http"
	"slices"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// Two have to approve. One of them votes and is removed: the other alone does not complete the quorum, a third does;
// and the run, which the removed one could have stopped, went on.
func TestVoteOfARemovedMember(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	if err := w.PutGrant(t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_triage", Approval: grant.Always, Quorum: 2, Tainted: true,
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}}); err != nil {
		t.Fatal(err)
	}
	as := func(name string) (*client.Client, id.Member) {
		t.Helper()
		k, err := w.AddMember(t.Context(), client.NewMember{Name: name, Role: member.Approver})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{URL: w.endpoints.API, Token: k.Secret})
		if err != nil {
			t.Fatal(err)
		}
		return c, k.Member
	}
	ada, _ := as("Ada")
	bob, bobs := as("Bob")
	eve, _ := as("Eve")
	if resp := w.deliver("72d3162e-cc78-11e3-81ab-4c9367dc0958"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the delivery is answered %s", resp.Status)
	}
	a := w.waitingApproval()
	vote := func(c *client.Client) (ask.Approval, error) {
		return c.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true})
	}
	if got, err := vote(ada); err != nil || got.State != "waiting" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := w.RemoveMember(t.Context(), "Ada", "left"); err != nil {
		t.Fatal(err)
	}
	if _, err := vote(ada); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("a removed member decides: %v", err)
	}
	if got, err := vote(bob); err != nil || got.State != "waiting" || !slices.Equal(got.Votes, []id.Member{bobs}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if w.github.Effects() != 0 {
		t.Fatal("one member approved, and it was done")
	}
	if got, err := vote(eve); err != nil || got.State != "approved" {
		t.Fatalf("%+v, %v", got, err)
	}
	buskit.Eventually(t, "the comment is written", func() bool { return w.github.Effects() == 1 })
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s", r.State)
	}
	if v := w.mustVerify(); v.Verdict != "verified" {
		t.Errorf("%+v", v)
	}
}
