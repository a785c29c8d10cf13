package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

func pushing(on, lent grant.Approval) (here, there policy.Known) {
	of := func(name id.Grant, tool string, rule grant.Approval, t policy.Tool) policy.Known {
		k := policy.Known{Agent: &agent.Defined{Agent: "agt_a"}, Tool: &t}
		if rule != "" {
			g := granted(tool, rule, "acme/shop")
			g.Created.Grant = name
			k.Grants = []policy.Grant{g}
		}
		return k
	}
	here = of("grt_machine", "machine.git_push", on, policy.Tool{Full: "machine.git_push", Route: call.Exec, Tool: connection.Tool{Name: "git_push", Schema: json.RawMessage(`{}`), Writes: true}})
	there = of("grt_lent", "github.git_push", lent, policy.Tool{Full: "github.git_push", Route: call.Upstream, GitHub: true, Tool: connection.Tool{Name: "git_push", Schema: json.RawMessage(`{}`), Writes: true, Lent: true}})
	return here, there
}

var (
	pushArgs = json.RawMessage(`{"branch":"b","connection":"github","repo":"acme/shop"}`)
	lentArgs = json.RawMessage(`{"branch":"b","commit":"","force":false,"owner":"acme","repo":"shop"}`)
)

// A call with two sides is what the stricter one says, under the digest of both.
func TestDecideLent(t *testing.T) {
	for _, c := range []struct {
		on, lent grant.Approval
		want     policy.Verdict
		says     string
	}{
		{grant.Never, grant.Never, policy.Admit, "granted"},
		{grant.Always, grant.Never, policy.Hold, "machine.git_push: the grant holds"},
		{grant.Never, grant.Always, policy.Hold, "github.git_push: the grant holds"},
		{grant.Always, grant.Always, policy.Hold, "; github.git_push: the grant holds"},
		{"", grant.Never, policy.Refuse, "machine.git_push: no active grant"},
		{grant.Never, "", policy.Refuse, "github.git_push: no active grant"},
		{"", "", policy.Refuse, "machine.git_push: no active grant"},
	} {
		here, there := pushing(c.on, c.lent)
		d := policy.DecideLent(here, there, policy.Request{Run: "run_1", Args: pushArgs}, lentArgs, &conditions, now)
		if d.Verdict != c.want || !strings.Contains(d.Reason, c.says) {
			t.Errorf("%q and %q: %+v", c.on, c.lent, d)
		}
		if d.Verdict == policy.Refuse {
			continue
		}
		if d.GrantID() != "grt_machine" || d.LentID() != "grt_lent" || d.Digest == "" {
			t.Errorf("%q and %q: %+v", c.on, c.lent, d)
		}
		if d.Verdict != policy.Hold {
			continue
		}
		ask := func(change func(*policy.Request)) policy.Decision {
			r := policy.Request{Run: "run_1", Args: pushArgs, Approved: d.Digest}
			change(&r)
			return policy.DecideLent(here, there, r, lentArgs, &conditions, now)
		}
		if got := ask(func(*policy.Request) {}); got.Verdict != policy.Admit || !got.Asked {
			t.Errorf("%q and %q, approved: %+v", c.on, c.lent, got)
		}
		for what, change := range map[string]func(*policy.Request){
			"another digest":  func(r *policy.Request) { r.Approved = "00" },
			"other arguments": func(r *policy.Request) { r.Args = json.RawMessage(`{"branch":"c"}`) },
			"one side's digest": func(r *policy.Request) {
				r.Approved = policy.Digest(there.Grants[0], *there.Tool, lentArgs, nil)
			},
			"another state of a grant": func(*policy.Request) { there.Grants[0].Seq++ },
		} {
			if got := ask(change); got.Verdict != policy.Refuse || got.Code != problem.Conflict {
				t.Errorf("%q and %q, %s: %+v", c.on, c.lent, what, got)
			}
		}
		there.Grants[0].Seq--
		scope := policy.LentScope(here.Grants[0], *here.Tool, pushArgs, there.Grants[0], *there.Tool, lentArgs, false)
		if got := ask(func(r *policy.Request) { r.Approved, r.Passed = "", func(s string) bool { return s == scope } }); got.Verdict != policy.Admit || got.Asked {
			t.Errorf("%q and %q, approved for the run: %+v", c.on, c.lent, got)
		}
	}
}

// What both sides ask of people is asked together.
func TestLentRule(t *testing.T) {
	here, there := pushing(grant.Always, grant.Always)
	here.Grants[0].Quorum, here.Grants[0].EscalateAfter, here.Grants[0].Approver = 2, 60, member.Approver
	there.Grants[0].FourEyes, there.Grants[0].EscalateAfter, there.Grants[0].Approver = true, 30, member.Admin
	d := policy.DecideLent(here, there, policy.Request{Run: "run_1", Args: pushArgs}, lentArgs, &conditions, now)
	if quorum, approver, four, after := d.Rule(); quorum != 2 || approver != member.Admin || !four || after != 30 {
		t.Errorf("quorum %d, approver %s, four eyes %v, escalated after %d", quorum, approver, four, after)
	}
	there.Grants[0].Approval = grant.Never // it asks nobody, and so nothing of anybody
	d = policy.DecideLent(here, there, policy.Request{Run: "run_1", Args: pushArgs}, lentArgs, &conditions, now)
	if quorum, approver, four, after := d.Rule(); quorum != 2 || approver != member.Approver || four || after != 60 {
		t.Errorf("quorum %d, approver %s, four eyes %v, escalated after %d", quorum, approver, four, after)
	}
}

// What is lent is nothing by itself: it is not shown, and not called.
func TestLentByItself(t *testing.T) {
	_, there := pushing(grant.Never, grant.Never)
	if d := policy.Decide(there, policy.Request{Run: "run_1", Args: lentArgs}, &conditions, now); d.Verdict != policy.Refuse {
		t.Errorf("%+v", d)
	}
	if policy.Visible(there, "run_1", now) {
		t.Error("it is shown")
	}
	here, other := pushing(grant.Never, grant.Never)
	other.Tool.Lent = false
	if d := policy.DecideLent(here, other, policy.Request{Run: "run_1", Args: pushArgs}, lentArgs, &conditions, now); d.Verdict != policy.Refuse {
		t.Errorf("another tool of the connection is lent: %+v", d)
	}
}
