package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func comment() *policy.Tool {
	return &policy.Tool{Full: "github.add_issue_comment", Route: call.Upstream, GitHub: true,
		Tool: connection.Tool{Name: "add_issue_comment", Schema: json.RawMessage(`{}`), Effect: connection.Probeable, Writes: true}}
}

func granted(tool string, rule grant.Approval, repos ...string) policy.Grant {
	return policy.Grant{Seq: 7, Created: grant.Created{Grant: "grt_g", Agent: "agt_a", Approval: rule,
		Selector: grant.Selector{Tool: tool, Repos: repos}}}
}

func TestDecide(t *testing.T) {
	args := json.RawMessage(`{"owner":"Acme","repo":"shop","issue_number":1,"body":"hi"}`)
	always := granted("github.*", grant.Always, "acme/shop")
	never := granted("github.add_issue_comment", grant.Never, "acme/*")
	expired := never
	expired.ExpiresAt = now
	otherRun := never
	otherRun.Run = "run_other"
	for name, c := range map[string]struct {
		grants  []policy.Grant
		tainted bool
		args    json.RawMessage
		approve string
		tool    *policy.Tool
		want    policy.Verdict
		code    problem.Code
	}{
		"no grant":                       {want: policy.Refuse, code: problem.Denied},
		"always holds":                   {grants: []policy.Grant{always}, want: policy.Hold},
		"approved digest admits":         {grants: []policy.Grant{always}, approve: policy.Digest(always, *comment(), args), want: policy.Admit},
		"another digest does not":        {grants: []policy.Grant{always}, approve: "00", want: policy.Refuse, code: problem.Conflict},
		"never admits":                   {grants: []policy.Grant{never}, want: policy.Admit},
		"least asking grant wins":        {grants: []policy.Grant{always, never}, want: policy.Admit},
		"tainted write holds":            {grants: []policy.Grant{never}, tainted: true, want: policy.Hold},
		"expired grant":                  {grants: []policy.Grant{expired}, want: policy.Refuse, code: problem.Denied},
		"grant of another run":           {grants: []policy.Grant{otherRun}, want: policy.Refuse, code: problem.Denied},
		"other repository":               {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"evil","repo":"shop"}`), want: policy.Refuse, code: problem.Denied},
		"path in the repository":         {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"acme","repo":"../evil/secret"}`), want: policy.Refuse, code: problem.Denied},
		"no repository":                  {grants: []policy.Grant{granted("github.*", grant.Never)}, want: policy.Refuse, code: problem.Denied},
		"unknown rule fails closed":      {grants: []policy.Grant{granted("github.*", "sometimes", "acme/shop")}, want: policy.Hold},
		"no such tool":                   {grants: []policy.Grant{never}, tool: &policy.Tool{Full: "-"}, want: policy.Refuse, code: problem.Denied},
		"repository that is not text":    {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":1,"repo":{}}`), want: policy.Refuse, code: problem.Denied},
		"approval by digest of old args": {grants: []policy.Grant{always}, approve: policy.Digest(always, *comment(), json.RawMessage(`{}`)), want: policy.Refuse, code: problem.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			tool, a := comment(), args
			if c.tool != nil {
				tool = c.tool
			}
			if c.args != nil {
				a = c.args
			}
			k := policy.Known{Agent: &agent.Defined{Agent: "agt_a"}, Tool: tool, Grants: c.grants}
			d := policy.Decide(k, policy.Request{Run: "run_r", Args: a, Tainted: c.tainted, Approved: c.approve}, now)
			if d.Verdict != c.want || d.Verdict == policy.Refuse && d.Code != c.code {
				t.Errorf("got %+v, want verdict %d code %s", d, c.want, c.code)
			}
			if d.Reason == "" {
				t.Error("a decision without a reason")
			}
		})
	}
}

func TestRefusedBeforeGrants(t *testing.T) {
	admit := []policy.Grant{granted("*.*", grant.Never, "*/*")}
	script := &policy.Tool{Full: "runtime.run_javascript", Route: call.Script}
	for name, c := range map[string]struct {
		k policy.Known
		r policy.Request
	}{
		"no agent":      {k: policy.Known{Tool: script, Grants: admit}},
		"removed agent": {k: policy.Known{Agent: &agent.Defined{Removed: true}, Tool: script, Grants: admit}},
		"no tool":       {k: policy.Known{Agent: &agent.Defined{}, Grants: admit}},
		"runtime off":   {k: policy.Known{Agent: &agent.Defined{}, Tool: script, Grants: admit}},
		"too late": {k: policy.Known{Agent: &agent.Defined{Runtime: agent.Runtime{Enabled: true}}, Tool: script, Grants: admit},
			r: policy.Request{NotAfter: now.Add(-time.Second)}},
	} {
		if d := policy.Decide(c.k, c.r, now); d.Verdict != policy.Refuse {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// The order of grants never matters, a call is never admitted that no single grant admits, and what is callable is
// visible.
func TestGrantsCompose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) policy.Grant {
			g := granted(
				rapid.SampledFrom([]string{"github.*", "github.add_issue_comment", "*.*", "*", "tickets.*", "github.add_*"}).Draw(t, "tool"),
				rapid.SampledFrom([]grant.Approval{grant.Never, grant.Always, ""}).Draw(t, "rule"),
				rapid.SampledFrom([]string{"acme/shop", "acme/*", "*", "evil/shop"}).Draw(t, "repo"))
			g.Tainted = rapid.Bool().Draw(t, "tainted")
			if rapid.Bool().Draw(t, "expires") {
				g.ExpiresAt = now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "in")) * time.Minute)
			}
			return g
		})
		grants := rapid.SliceOfN(gen, 0, 5).Draw(t, "grants")
		k := policy.Known{Agent: &agent.Defined{}, Tool: comment(), Grants: grants}
		r := policy.Request{Run: "run_r", Args: json.RawMessage(`{"owner":"acme","repo":"shop"}`), Tainted: rapid.Bool().Draw(t, "t")}
		d := policy.Decide(k, r, now)

		best := policy.Refuse
		for _, g := range grants {
			one := k
			one.Grants = []policy.Grant{g}
			best = max(best, policy.Decide(one, r, now).Verdict)
		}
		if d.Verdict != best {
			t.Fatalf("together %d, best alone %d", d.Verdict, best)
		}
		k.Grants = rapid.Permutation(grants).Draw(t, "shuffled")
		if got := policy.Decide(k, r, now).Verdict; got != d.Verdict {
			t.Fatalf("in another order %d, was %d", got, d.Verdict)
		}
		if d.Verdict != policy.Refuse && !policy.Visible(k, r.Run, now) {
			t.Fatal("callable, but not visible")
		}
	})
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"github.*", "github.get_me", true}, {"*", "github.get_me", false}, {"*.*", "github.get_me", true},
		{"github.add_*", "github.add_issue_comment", true}, {"github.add_*", "github.issue_read", false},
		{"github.*comment", "github.add_issue_comment", true}, {"", "x", false}, {"a*", "a", true}, {"a**b", "ab", true},
		{"github.*", "githubx.y", false}, {"*a*b*c", "xaybzc", true}, {"*a*b*c", "xaybz", false}, {"GitHub.*", "github.x", false},
	} {
		if got := policy.Match(c.glob, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.glob, c.name, got)
		}
	}
	// A glob made to be slow is not: this would not end by backtracking.
	if policy.Match(strings.Repeat("*a", 30)+"b", strings.Repeat("a", 5000)) {
		t.Error("a glob that ends in b matches a text without one")
	}
}
