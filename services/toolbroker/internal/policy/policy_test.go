package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

var conditions condition.Cache

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func comment() *policy.Tool {
	return &policy.Tool{Full: "github.add_issue_comment", Route: call.Upstream, GitHub: true,
		Tool: connection.Tool{Name: "add_issue_comment", Schema: json.RawMessage(`{}`), Effect: connection.Probeable, Writes: true}}
}

func changed(at time.Time) *policy.Tool {
	t := comment()
	t.ChangedAt = at
	return t
}

func granted(tool string, rule grant.Approval, repos ...string) policy.Grant {
	return policy.Grant{Seq: 7, At: now, Created: grant.Created{Grant: "grt_g", Agent: "agt_a", Approval: rule,
		Selector: grant.Selector{Tool: tool, Repos: repos}}}
}

func TestDecide(t *testing.T) {
	args := json.RawMessage(`{"owner":"Acme","repo":"shop","issue_number":1,"body":"hi"}`)
	always := granted("github.*", grant.Always, "acme/shop")
	never := granted("github.add_issue_comment", grant.Never, "acme/*")
	expired := never
	expired.ExpiresAt = now
	with := func(g policy.Grant, change func(*policy.Grant)) policy.Grant { change(&g); return g }
	deny := with(granted("github.*", ""), func(g *policy.Grant) { g.Verdict = grant.Deny })
	firstPerRun := with(never, func(g *policy.Grant) { g.Approval = grant.FirstPerRun })
	when := func(text string) policy.Grant {
		return with(never, func(g *policy.Grant) { g.Approval, g.ApproveWhen = grant.When, text })
	}
	onlyIf := func(text string) policy.Grant { return with(never, func(g *policy.Grant) { g.Condition = text }) }
	otherRun := never
	otherRun.Run = "run_other"
	for name, c := range map[string]struct {
		grants  []policy.Grant
		tainted bool
		args    json.RawMessage
		input   string
		approve string
		before  bool
		tool    *policy.Tool
		want    policy.Verdict
		code    problem.Code
	}{
		"no grant":                               {want: policy.Refuse, code: problem.Denied},
		"always holds":                           {grants: []policy.Grant{always}, want: policy.Hold},
		"approved digest admits":                 {grants: []policy.Grant{always}, approve: policy.Digest(always, *comment(), args, nil), want: policy.Admit},
		"another digest does not":                {grants: []policy.Grant{always}, approve: "00", want: policy.Refuse, code: problem.Conflict},
		"never admits":                           {grants: []policy.Grant{never}, want: policy.Admit},
		"least asking grant wins":                {grants: []policy.Grant{always, never}, want: policy.Admit},
		"tainted write holds":                    {grants: []policy.Grant{never}, tainted: true, want: policy.Hold},
		"expired grant":                          {grants: []policy.Grant{expired}, want: policy.Refuse, code: problem.Denied},
		"grant of another run":                   {grants: []policy.Grant{otherRun}, want: policy.Refuse, code: problem.Denied},
		"other repository":                       {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"evil","repo":"shop"}`), want: policy.Refuse, code: problem.Denied},
		"path in the repository":                 {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"acme","repo":"../evil/secret"}`), want: policy.Refuse, code: problem.Denied},
		"no repository":                          {grants: []policy.Grant{granted("github.*", grant.Never)}, want: policy.Refuse, code: problem.Denied},
		"unknown rule fails closed":              {grants: []policy.Grant{granted("github.*", "sometimes", "acme/shop")}, want: policy.Hold},
		"denial wins":                            {grants: []policy.Grant{never, deny}, want: policy.Refuse, code: problem.Denied},
		"denial of another repository":           {grants: []policy.Grant{never, with(deny, func(g *policy.Grant) { g.Selector.Repos = []string{"evil/*"} })}, want: policy.Admit},
		"denial whose condition holds":           {grants: []policy.Grant{never, with(deny, func(g *policy.Grant) { g.Condition = `args.body == "hi"` })}, want: policy.Refuse, code: problem.Denied},
		"denial whose condition does not hold":   {grants: []policy.Grant{never, with(deny, func(g *policy.Grant) { g.Condition = `args.body == "ho"` })}, want: policy.Admit},
		"denial that cannot be told":             {grants: []policy.Grant{never, with(deny, func(g *policy.Grant) { g.Condition = `args.missing == "x"` })}, want: policy.Refuse, code: problem.Denied},
		"condition that holds":                   {grants: []policy.Grant{onlyIf(`args.issue_number == 1`)}, want: policy.Admit},
		"condition that does not":                {grants: []policy.Grant{onlyIf(`args.issue_number == 2`)}, want: policy.Refuse, code: problem.Denied},
		"condition that cannot be told":          {grants: []policy.Grant{onlyIf(`args.missing == 2`)}, want: policy.Refuse, code: problem.Denied},
		"condition that is none":                 {grants: []policy.Grant{onlyIf(`(`)}, want: policy.Refuse, code: problem.Denied},
		"first call of a run":                    {grants: []policy.Grant{firstPerRun}, want: policy.Hold},
		"second call of a run":                   {grants: []policy.Grant{firstPerRun}, before: true, want: policy.Admit},
		"approval when it holds":                 {grants: []policy.Grant{when(`args.body.contains("hi")`)}, want: policy.Hold},
		"no approval when it does not":           {grants: []policy.Grant{when(`args.body.contains("ho")`)}, want: policy.Admit},
		"approval when it cannot be told":        {grants: []policy.Grant{when(`args.missing`)}, want: policy.Hold},
		"method that is not included":            {grants: []policy.Grant{with(never, func(g *policy.Grant) { g.Selector.Methods = []string{"get"} })}, args: json.RawMessage(`{"owner":"acme","repo":"shop","method":"delete"}`), want: policy.Refuse, code: problem.Denied},
		"method by another spelling of its name": {grants: []policy.Grant{with(never, func(g *policy.Grant) { g.Selector.Methods = []string{"get"} })}, args: json.RawMessage(`{"owner":"acme","repo":"shop","method":"delete","Method":"get"}`), want: policy.Refuse, code: problem.Denied},
		"method that is included":                {grants: []policy.Grant{with(never, func(g *policy.Grant) { g.Selector.Methods = []string{"get"} })}, args: json.RawMessage(`{"owner":"acme","repo":"shop","method":"get"}`), want: policy.Admit},
		"effect that is not included":            {grants: []policy.Grant{with(never, func(g *policy.Grant) { g.Selector.Effects = []connection.Effect{connection.Pure} })}, want: policy.Refuse, code: problem.Denied},
		"unknown verdict":                        {grants: []policy.Grant{with(never, func(g *policy.Grant) { g.Verdict = "perhaps" })}, want: policy.Refuse, code: problem.Denied},
		"tool that changed since it was granted": {grants: []policy.Grant{never}, tool: changed(now.Add(time.Minute)), want: policy.Hold},
		"tool that changed before":               {grants: []policy.Grant{never}, tool: changed(now.Add(-time.Minute)), want: policy.Admit},
		"no such tool":                           {grants: []policy.Grant{never}, tool: &policy.Tool{Full: "-"}, want: policy.Refuse, code: problem.Denied},
		"repository that is not text":            {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":1,"repo":{}}`), want: policy.Refuse, code: problem.Denied},
		"owner in another spelling":              {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"evil","repo":"shop","Owner":"acme"}`), want: policy.Refuse, code: problem.Denied},
		"repo in another spelling alone":         {grants: []policy.Grant{never}, args: json.RawMessage(`{"owner":"acme","REPO":"shop"}`), want: policy.Refuse, code: problem.Denied},
		"approval by digest of old args":         {grants: []policy.Grant{always}, approve: policy.Digest(always, *comment(), json.RawMessage(`{}`), nil), want: policy.Refuse, code: problem.Conflict},
		"approval of other answers":              {grants: []policy.Grant{always}, input: `{"requestState":"a"}`, approve: policy.Digest(always, *comment(), args, json.RawMessage(`{"requestState":"b"}`)), want: policy.Refuse, code: problem.Conflict},
		"approval of no answers":                 {grants: []policy.Grant{always}, input: `{"requestState":"a"}`, approve: policy.Digest(always, *comment(), args, nil), want: policy.Refuse, code: problem.Conflict},
		"approval of these answers":              {grants: []policy.Grant{always}, input: `{"requestState":"a"}`, approve: policy.Digest(always, *comment(), args, json.RawMessage(`{"requestState":"a"}`)), want: policy.Admit},
		"answers that a condition wants":         {grants: []policy.Grant{onlyIf(`input.requestState == "a"`)}, input: `{"requestState":"a"}`, want: policy.Admit},
		"answers that it does not want":          {grants: []policy.Grant{onlyIf(`input.requestState == "a"`)}, input: `{"requestState":"b"}`, want: policy.Refuse, code: problem.Denied},
		"answers that hold":                      {grants: []policy.Grant{when(`has(input.requestState)`)}, input: `{"requestState":"b"}`, want: policy.Hold},
		"no answers that hold":                   {grants: []policy.Grant{when(`has(input.requestState)`)}, want: policy.Admit},
		"answers that are denied":                {grants: []policy.Grant{never, with(deny, func(g *policy.Grant) { g.Condition = `input.inputResponses.it == 1` })}, input: `{"inputResponses":{"it":1}}`, want: policy.Refuse, code: problem.Denied},
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
			d := policy.Decide(k, policy.Request{Run: "run_r", Args: a, Input: json.RawMessage(c.input), Tainted: c.tainted, Approved: c.approve, Before: func(id.Grant) bool { return c.before }}, &conditions, now)
			if d.Verdict != c.want || d.Verdict == policy.Refuse && d.Code != c.code {
				t.Errorf("got %+v, want verdict %d code %s", d, c.want, c.code)
			}
			if d.Reason == "" {
				t.Error("a decision without a reason")
			}
		})
	}
}

// What was approved for the rest of a run covers calls of the same tool, method and repository, under the same state of
// the grant, and nothing that the person was not told of.
func TestForTheRun(t *testing.T) {
	args := json.RawMessage(`{"owner":"acme","repo":"shop","method":"get","body":"hi"}`)
	given := granted("github.*", grant.Always, "acme/*")
	with := func(change func(*policy.Grant)) []policy.Grant { g := given; change(&g); return []policy.Grant{g} }
	for name, c := range map[string]struct {
		tainted bool // the approved call
		grants  []policy.Grant
		tool    *policy.Tool
		args    string
		later   bool // tainted
		want    policy.Verdict
	}{
		"the same":                       {want: policy.Admit},
		"other arguments":                {args: `{"owner":"ACME","repo":"Shop","method":"get","body":"ho"}`, want: policy.Admit},
		"another method":                 {args: `{"owner":"acme","repo":"shop","method":"delete"}`, want: policy.Hold},
		"a method of another type":       {args: `{"owner":"acme","repo":"shop","method":["get"]}`, want: policy.Hold},
		"no method":                      {args: `{"owner":"acme","repo":"shop"}`, want: policy.Hold},
		"another repository":             {args: `{"owner":"acme","repo":"web","method":"get"}`, want: policy.Hold},
		"a repository that is not of it": {args: `{"owner":"evil","repo":"shop","method":"get"}`, want: policy.Refuse},
		"another tool":                   {tool: &policy.Tool{Full: "github.delete_file", Route: call.Upstream, GitHub: true, Tool: connection.Tool{Schema: json.RawMessage(`{}`), Writes: true}}, want: policy.Hold},
		"the grant made again":           {grants: with(func(g *policy.Grant) { g.Seq++ }), want: policy.Hold},
		"another grant":                  {grants: with(func(g *policy.Grant) { g.Created.Grant = "grt_other" }), want: policy.Hold},
		"the grant revoked":              {grants: []policy.Grant{}, want: policy.Refuse},
		"the grant expired":              {grants: with(func(g *policy.Grant) { g.ExpiresAt = now }), want: policy.Refuse},
		"the grant of another run":       {grants: with(func(g *policy.Grant) { g.Run = "run_other" }), want: policy.Refuse},
		"a condition that does not hold": {grants: with(func(g *policy.Grant) { g.Condition = `args.body == "ho"` }), want: policy.Refuse},
		"a denial beside it":             {grants: append(with(func(*policy.Grant) {}), policy.Grant{Created: grant.Created{Grant: "grt_no", Verdict: grant.Deny, Selector: grant.Selector{Tool: "github.*"}}}), want: policy.Refuse},
		"the tool changed since":         {tool: changed(now.Add(time.Minute)), want: policy.Hold},
		"the run tainted since":          {later: true, want: policy.Hold},
		"tainted before and after":       {tainted: true, later: true, want: policy.Admit},
		"tainted before":                 {tainted: true, want: policy.Admit},
		"a grant that does not mind":     {grants: with(func(g *policy.Grant) { g.Tainted = true }), later: true, want: policy.Admit},
		"a rule that may mind": {grants: with(func(g *policy.Grant) {
			g.Tainted, g.Approval, g.ApproveWhen = true, grant.When, `tainted || args.body == "hi"`
		}), later: true, want: policy.Hold},
	} {
		t.Run(name, func(t *testing.T) {
			of := given
			if len(c.grants) > 0 && c.grants[0].Tainted {
				of.Tainted, of.Approval, of.ApproveWhen = true, c.grants[0].Approval, c.grants[0].ApproveWhen
			}
			scope := policy.Scope(of, *comment(), args, c.tainted)
			k := policy.Known{Agent: &agent.Defined{Agent: "agt_a"}, Tool: comment(), Grants: []policy.Grant{given}}
			if c.grants != nil {
				k.Grants = c.grants
			}
			if c.tool != nil {
				k.Tool = c.tool
			}
			r := policy.Request{Run: "run_r", Args: args, Tainted: c.later, Passed: func(s string) bool { return s == scope }}
			if c.args != "" {
				r.Args = json.RawMessage(c.args)
			}
			if d := policy.Decide(k, r, &conditions, now); d.Verdict != c.want || d.Verdict == policy.Admit && d.Reason != "approved for this run" {
				t.Errorf("%+v, want %d", d, c.want)
			}
		})
	}
	// Who is asked is told all of why.
	k := policy.Known{Agent: &agent.Defined{}, Tool: changed(now.Add(time.Minute)), Grants: []policy.Grant{given}}
	d := policy.Decide(k, policy.Request{Args: args, Tainted: true}, &conditions, now)
	for _, want := range []string{"every call", "otherwise than when it was granted", "nobody vouches for"} {
		if !strings.Contains(d.Reason, want) {
			t.Errorf("no %q in %q", want, d.Reason)
		}
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
		if d := policy.Decide(c.k, c.r, &conditions, now); d.Verdict != policy.Refuse {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// The order of grants never matters; a denial that is about the call wins over everything; without one the outcome is
// the best that any single grant gives; and what is callable is visible.
func TestGrantsCompose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) policy.Grant {
			g := granted(
				rapid.SampledFrom([]string{"github.*", "github.add_issue_comment", "*.*", "*", "tickets.*", "github.add_*"}).Draw(t, "tool"),
				rapid.SampledFrom([]grant.Approval{grant.Never, grant.Always, ""}).Draw(t, "rule"),
				rapid.SampledFrom([]string{"acme/shop", "acme/*", "*", "evil/shop"}).Draw(t, "repo"))
			g.Tainted = rapid.Bool().Draw(t, "tainted")
			g.Verdict = rapid.SampledFrom([]grant.Verdict{"", grant.Allow, grant.Allow, grant.Deny}).Draw(t, "verdict")
			g.Condition = rapid.SampledFrom([]string{"", "", "tainted", "!tainted", "args.missing"}).Draw(t, "condition")
			if rapid.Bool().Draw(t, "expires") {
				g.ExpiresAt = now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "in")) * time.Minute)
			}
			return g
		})
		grants := rapid.SliceOfN(gen, 0, 6).Draw(t, "grants")
		k := policy.Known{Agent: &agent.Defined{}, Tool: comment(), Grants: grants}
		r := policy.Request{Run: "run_r", Args: json.RawMessage(`{"owner":"acme","repo":"shop"}`), Tainted: rapid.Bool().Draw(t, "t")}
		d := policy.Decide(k, r, &conditions, now)

		want, denied := policy.Refuse, false
		allowAll := granted("*.*", grant.Never, "*/*")
		allowAll.Tainted = true
		for _, g := range grants {
			one := k
			if g.Verdict == grant.Deny {
				one.Grants = []policy.Grant{allowAll, g}
				denied = denied || policy.Decide(one, r, &conditions, now).Verdict == policy.Refuse
				continue
			}
			one.Grants = []policy.Grant{g}
			want = max(want, policy.Decide(one, r, &conditions, now).Verdict)
		}
		if denied {
			want = policy.Refuse
		}
		if d.Verdict != want {
			t.Fatalf("together %d, want %d", d.Verdict, want)
		}
		k.Grants = rapid.Permutation(grants).Draw(t, "shuffled")
		if got := policy.Decide(k, r, &conditions, now).Verdict; got != d.Verdict {
			t.Fatalf("in another order %d, was %d", got, d.Verdict)
		}
		if d.Verdict != policy.Refuse && !policy.Visible(k, r.Run, now) {
			t.Fatal("callable, but not visible")
		}
	})
}

// What an agent is shown is what it may call with some arguments, and nothing else: one decision is behind both.
func TestReported(t *testing.T) {
	t.Run("IBM/mcp-context-forge#6015 what is listed can be called, and the reverse", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			gen := rapid.Custom(func(t *rapid.T) policy.Grant {
				g := granted(rapid.SampledFrom([]string{"github.*", "github.add_issue_comment", "tickets.*"}).Draw(t, "tool"),
					rapid.SampledFrom([]grant.Approval{grant.Never, grant.Always}).Draw(t, "rule"),
					rapid.SampledFrom([]string{"acme/shop", "acme/other"}).Draw(t, "repo"))
				g.Verdict = rapid.SampledFrom([]grant.Verdict{grant.Allow, grant.Deny}).Draw(t, "verdict")
				if g.Verdict == grant.Deny && rapid.Bool().Draw(t, "everywhere") {
					g.Selector.Repos = nil
				}
				if rapid.Bool().Draw(t, "expired") {
					g.ExpiresAt = now.Add(-time.Minute)
				}
				return g
			})
			k := policy.Known{Agent: &agent.Defined{Removed: rapid.Bool().Draw(t, "removed")}, Tool: comment(), Grants: rapid.SliceOfN(gen, 0, 2).Draw(t, "grants")}
			callable, partly := false, false
			for _, repo := range []string{"shop", "other"} {
				d := policy.Decide(k, policy.Request{Run: "run_r", Args: json.RawMessage(`{"owner":"acme","repo":"` + repo + `"}`)}, &conditions, now)
				callable = callable || d.Verdict != policy.Refuse
			}
			for _, g := range k.Grants { // a denial in some repositories hides nothing: the others may be callable
				partly = partly || g.Verdict == grant.Deny && len(g.Selector.Repos) > 0
			}
			if visible := policy.Visible(k, "run_r", now); callable && !visible || visible && !callable && !partly {
				t.Fatalf("visible %v, callable %v", visible, callable)
			}
		})
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
