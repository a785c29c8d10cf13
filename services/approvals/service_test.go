package approvals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is the approval service on a real bus.
type house struct {
	*servicekit.Kit
	t    *testing.T
	stop func()
	ask  func(method string, who rpc.Caller, q any) (json.RawMessage, error)
}

func config(life time.Duration) approvals.Config {
	return approvals.Config{ApprovalLife: life, NoticeRetry: 50 * time.Millisecond, ConsoleURL: "https://warden.example.com"}
}

func start(t *testing.T, life time.Duration) *house {
	t.Helper()
	t.Parallel()
	h := &house{Kit: servicekit.Start(t), t: t}
	s, err := approvals.New(config(life), h.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	h.stop = h.Run(s)
	conn := h.Conn(t, string(schemas.Gateway))
	h.ask = func(method string, who rpc.Caller, q any) (json.RawMessage, error) {
		return rpc.Ask[json.RawMessage](t.Context(), conn, schemas.Approvals, method, who, q)
	}
	buskit.Eventually(t, "the service decides", func() bool { // it has heard who is a member
		_, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: "apr_none"})
		return problem.CodeOf(err) == problem.NotFound
	})
	return h
}

// hold says that a call is held, as the broker does, and gives the approval that follows.
func (h *house) hold(c id.Call, args string) approval.Requested {
	h.t.Helper()
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Body: call.Args{Args: json.RawMessage(args)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Digest: "digest-" + string(c), Reason: "r", Requested: seq}})
	r, _ := servicekit.Await[approval.Requested](h.Kit, 1, func(r approval.Requested) bool { return r.Call == c })
	return r
}

func TestOnlyMembersDecide(t *testing.T) {
	h := start(t, time.Hour)
	r := h.hold("call_1", `{"a":"<b>"}`)
	if string(r.Body.Args) != `{"a":"\u003cb\u003e"}` && string(r.Body.Args) != `{"a":"<b>"}` || r.Digest != "digest-call_1" || r.Agent != "agt_a" {
		t.Errorf("%+v", r)
	}
	yes := ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true}
	for name, who := range map[string]rpc.Caller{
		"an auditor":              servicekit.Caller("mem_x", member.Auditor),
		"a member of no role":     servicekit.Caller("mem_x", ""),
		"a role of one's own":     servicekit.Caller("mem_x", "root"),
		"an agent":                servicekit.Caller("agt_a", member.Owner),
		"a service":               servicekit.Caller("service:gateway", member.Owner),
		"nobody":                  servicekit.Caller("", member.Owner),
		"a token":                 servicekit.Caller("tok_1", member.Owner),
		"a member with a subject": servicekit.Caller("mem_x.>", member.Owner),
	} {
		if _, err := h.ask("approval_decide", who, yes); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, q := range map[string]struct {
		q    ask.DecideApproval
		want problem.Code
	}{
		"another digest":    {ask.DecideApproval{Approval: r.Approval, Digest: "digest-call_2", Approve: true}, problem.Conflict},
		"no digest":         {ask.DecideApproval{Approval: r.Approval, Approve: true}, problem.Conflict},
		"another approval":  {ask.DecideApproval{Approval: "apr_other", Digest: r.Digest, Approve: true}, problem.NotFound},
		"everybody's":       {ask.DecideApproval{Approval: "*", Digest: r.Digest, Approve: true}, problem.Invalid},
		"a very long note":  {ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true, Note: strings.Repeat("x", 4<<10+1)}, problem.Invalid},
		"an id that is not": {ask.DecideApproval{Approval: "call_1", Digest: r.Digest}, problem.Invalid},
	} {
		if _, err := h.ask("approval_decide", servicekit.Owner(), q.q); problem.CodeOf(err) != q.want {
			t.Errorf("%s: %v, want %s", name, err, q.want)
		}
	}
	if _, err := h.ask("approval_decide", rpc.Caller{Tenant: "tnt_b", Actor: "mem_x", Role: "owner"}, yes); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("another tenant's owner: %v", err)
	}
	if n := len(h.Events(schemas.Activity, "approval.decided")); n != 0 {
		t.Fatalf("%d decisions are recorded", n)
	}
	// Many members decide at once: one counts, and the same decision of the same member is answered as the first time.
	var won atomic.Int64
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			_, err := h.ask("approval_decide", servicekit.Caller(fmt.Sprint("mem_", i), member.Approver), yes)
			switch problem.CodeOf(err) {
			case "":
				won.Add(1)
			case problem.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	decided, at := servicekit.Await[approval.Decided](h.Kit, 1, nil)
	if n := len(h.Events(schemas.Activity, "approval.decided")); n != 1 || won.Load() != 1 || !decided.Approved || at.Envelope.Actor != string(decided.By) {
		t.Errorf("%d decisions, %d winners, %+v", n, won.Load(), decided)
	}
	if _, err := h.ask("approval_decide", servicekit.Caller(string(decided.By), member.Approver), yes); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, err := h.ask("approval_decide", servicekit.Caller(string(decided.By), member.Approver), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a change of mind: %v", err)
	}
}

// A held call is opened once, however often it is heard; one that makes no sense holds up nobody.
func TestHeldCalls(t *testing.T) {
	h := start(t, time.Hour)
	other := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: "call_other", Run: "run_1"}})
	if _, err := h.Boot.JS.Publish(t.Context(), "ew.v1.tnt_a.call.run_1.requested", []byte("{")); err != nil {
		t.Fatal(err)
	}
	for name, requested := range map[string]uint64{"another call's request": other, "a request that cannot be read": other + 1, "a request that is not there": 1 << 40, "none": 0} {
		h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: id.Derive[id.Call](name), Run: "run_1", Digest: "d", Requested: requested}})
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Tenant: "tnt_b", Key: "run_1", Event: call.Held{Call: "call_other", Run: "run_1", Digest: "d", Requested: other}}) // another tenant's request
	r := h.hold("call_1", `{}`)
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: "call_1", Run: "run_1", Digest: r.Digest, Requested: r.Requested}})
	h.hold("call_2", `{}`)
	if n := len(h.Events(schemas.Activity, "approval.requested")); n != 2 {
		t.Errorf("%d approvals are open", n)
	}
}

func TestExpiry(t *testing.T) {
	h := start(t, time.Second)
	r := h.hold("call_1", `{}`)
	got, at := servicekit.Await[approval.Expired](h.Kit, 1, nil)
	if got.Approval != r.Approval || got.Digest != r.Digest || got.Requested != r.Requested || at.Envelope.Time.Before(r.ExpiresAt) {
		t.Errorf("%+v at %s", got, at.Envelope.Time)
	}
	if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true}); problem.CodeOf(err) != problem.Expired {
		t.Errorf("decided too late: %v", err)
	}
	time.Sleep(1200 * time.Millisecond) // one more sweep
	if n := len(h.Events(schemas.Activity, "approval.expired")); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}

// However large what waits is, members are shown some of it.
func TestListFits(t *testing.T) {
	h := start(t, time.Hour)
	for i := range 6 {
		h.hold(id.Call(fmt.Sprint("call_", i)), `{"a":"`+strings.Repeat("x", 240<<10)+`"}`)
	}
	raw, err := h.ask("approval_list", servicekit.Owner(), ask.ListApprovals{Open: true})
	var list ask.Approvals
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil || len(list.Approvals) == 0 || list.Approvals[0].Call != "call_5" || len(list.Approvals[0].Body.Args) < 240<<10 {
		t.Errorf("%d approvals, %v", len(list.Approvals), err)
	}
}

// Pages go on where the last one ended, whatever is decided and requested meanwhile, and every approval is on one of them.
func TestListPages(t *testing.T) {
	h := start(t, time.Hour)
	var held []approval.Requested
	for i := range 7 {
		held = append(held, h.hold(id.Call(fmt.Sprint("call_", i)), `{"a":"`+strings.Repeat("x", 200<<10)+`"}`))
	}
	var got []string
	q := ask.ListApprovals{Limit: 2}
	for range 10 {
		raw, err := h.ask("approval_list", servicekit.Owner(), q)
		var page ask.Approvals
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil || len(page.Approvals) == 0 || len(page.Approvals) > 2 {
			t.Fatalf("%d approvals, %v", len(page.Approvals), err)
		}
		for _, a := range page.Approvals {
			got = append(got, string(a.Call))
		}
		if q.Before = page.Next; q.Before == "" {
			break
		}
		// What is decided keeps its place, and what is new is on no later page.
		if len(got) == 2 {
			if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: held[0].Approval, Digest: held[0].Digest}); err != nil {
				t.Fatal(err)
			}
			h.hold("call_new", `{}`)
		}
	}
	if text := strings.Join(got, " "); text != "call_6 call_5 call_4 call_3 call_2 call_1 call_0" {
		t.Error(text)
	}
	for _, q := range []ask.ListApprovals{{Before: "x"}, {Before: "-1"}, {Before: "0"}, {Limit: -1}, {Limit: 101}} {
		if _, err := h.ask("approval_list", servicekit.Owner(), q); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// Of decisions and the expiry that fall on one moment, one wins: the approval ends once, and who is told that they decided
// did.
func TestDecisionAndExpiryRace(t *testing.T) {
	h := start(t, time.Second)
	var held []approval.Requested
	for i := range 4 {
		held = append(held, h.hold(id.Call(fmt.Sprint("call_", i)), `{}`))
	}
	won := make([]atomic.Int64, len(held))
	var wait sync.WaitGroup
	for i, r := range held {
		for _, who := range []string{"mem_a", "mem_b"} {
			wait.Go(func() {
				for { // until the moment comes
					vote := ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true}
					if left := time.Until(r.ExpiresAt); left > 5*time.Millisecond {
						time.Sleep(left / 2)
						continue
					}
					_, err := h.ask("approval_decide", servicekit.Caller(who, member.Approver), vote)
					switch problem.CodeOf(err) {
					case "":
						won[i].Add(1)
					case problem.Conflict, problem.Expired:
					default:
						t.Error(err)
					}
					return
				}
			})
		}
	}
	wait.Wait()
	for i, r := range held {
		buskit.Eventually(t, "it ends", func() bool {
			a, err := h.show("approval_show", servicekit.Owner(), ask.ShowApproval{Approval: r.Approval})
			return err == nil && a.State != "waiting" && h.ends(r.Approval) > 0
		})
		if n := h.ends(r.Approval); n != 1 || won[i].Load() > 1 {
			t.Errorf("%s ends %d times, %d won", r.Approval, n, won[i].Load())
		}
		decided := len(h.of("approval.decided", r.Approval))
		if int64(decided) != won[i].Load() {
			t.Errorf("%s: %d decisions, %d were told that they decided", r.Approval, decided, won[i].Load())
		}
	}
}

func (h *house) of(kind string, a id.Approval) (out []eventlog.Stored) {
	for _, e := range h.Events(schemas.Activity, kind) {
		if e.At.Key == string(a) {
			out = append(out, e)
		}
	}
	return out
}

func (h *house) ends(a id.Approval) int {
	return len(h.of("approval.decided", a)) + len(h.of("approval.expired", a))
}

func (h *house) granted(t *testing.T) grant.Created {
	t.Helper()
	g := grant.Created{Grant: "grt_1", Agent: "agt_a", Approval: grant.Always, Selector: grant.Selector{Tool: "github.*", Repos: []string{"acme/shop"}}}
	if _, err := h.ask("grant_create", servicekit.Owner(), ask.CreateGrant{Grant: g}); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGrants(t *testing.T) {
	h := start(t, time.Hour)
	g := h.granted(t)
	for _, role := range []member.Role{member.Approver, member.Auditor, ""} {
		if _, err := h.ask("grant_create", servicekit.Caller("mem_x", role), ask.CreateGrant{Grant: g}); problem.CodeOf(err) != problem.Denied {
			t.Errorf("role %q grants: %v", role, err)
		}
		if _, err := h.ask("grant_revoke", servicekit.Caller("mem_x", role), ask.RevokeGrant{Grant: "grt_1"}); problem.CodeOf(err) != problem.Denied {
			t.Errorf("role %q revokes: %v", role, err)
		}
	}
	for name, change := range map[string]func(*grant.Created){
		"no id":                  func(g *grant.Created) { g.Grant = "" },
		"no agent":               func(g *grant.Created) { g.Agent = "mem_x" },
		"a tool of no name":      func(g *grant.Created) { g.Selector.Tool = "github" },
		"everything":             func(g *grant.Created) { g.Selector.Tool = "*" },
		"a tool with a newline":  func(g *grant.Created) { g.Selector.Tool = "github.x\n" },
		"a rule that is none":    func(g *grant.Created) { g.Approval = "sometimes" },
		"no rule":                func(g *grant.Created) { g.Approval = "" },
		"over already":           func(g *grant.Created) { g.ExpiresAt = time.Now().Add(-time.Second) },
		"a repository's path":    func(g *grant.Created) { g.Selector.Repos = []string{"acme/../evil"} },
		"a repository's owner":   func(g *grant.Created) { g.Selector.Repos = []string{"acme"} },
		"a repository's newline": func(g *grant.Created) { g.Selector.Repos = []string{"acme/shop\nevil/x"} },
	} {
		x := g
		change(&x)
		if _, err := h.ask("grant_create", servicekit.Owner(), ask.CreateGrant{Grant: x}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(h.Events(schemas.Control, "grant.created", "grant.revoked")); n != 1 {
		t.Errorf("%d events of grants", n)
	}
	if _, err := h.ask("grant_revoke", servicekit.Owner(), ask.RevokeGrant{Grant: "grt_none"}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("a grant that is not there: %v", err)
	}
	if _, err := h.ask("grant_revoke", rpc.Caller{Tenant: "tnt_b", Actor: "mem_x", Role: "owner"}, ask.RevokeGrant{Grant: "grt_1"}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("another tenant revokes: %v", err)
	}
}

// A revocation is done when every broker knows, also for whoever asks again.
func TestRevokeWaitsForEveryBroker(t *testing.T) {
	h := start(t, time.Hour)
	h.granted(t)
	var views []*eventlog.View
	for range 2 {
		d := h.Deps(schemas.Toolbroker)
		view := d.View(func(eventlog.Stored) {})
		answers, err := d.Answer(barrier.Answer(view))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = view.Run(ctx) })
		t.Cleanup(func() { stop(); answers.Close(); running.Wait() })
		if err := view.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		views = append(views, view)
	}
	revoke := func() (ask.InForce, error) {
		raw, err := h.ask("grant_revoke", servicekit.Owner(), ask.RevokeGrant{Grant: "grt_1", Reason: "r"})
		var s ask.InForce
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		return s, err
	}
	first, err := revoke()
	if err != nil || first.Heard != 2 || len(first.Fenced) != 0 || views[0].Seq() < first.Seq || views[1].Seq() < first.Seq {
		t.Errorf("%+v, %v", first, err)
	}
	revoked, at := servicekit.Await[grant.Revoked](h.Kit, 1, nil)
	if revoked.Agent != "agt_a" || revoked.Reason != "r" || at.Envelope.Actor != "mem_owner" {
		t.Errorf("%+v by %s", revoked, at.Envelope.Actor)
	}
	if again, err := revoke(); err != nil || again.Seq != at.Seq || again.Heard != 2 {
		t.Errorf("revoked again: %+v, %v", again, err)
	}
	if n := len(h.Events(schemas.Control, "grant.revoked")); n != 1 {
		t.Errorf("it is revoked %d times", n)
	}
}

func TestConfig(t *testing.T) {
	for name, change := range map[string]func(*approvals.Config){
		"no life":                 func(c *approvals.Config) { c.ApprovalLife = 0 },
		"a life that is over":     func(c *approvals.Config) { c.ApprovalLife = -time.Hour },
		"a very short life":       func(c *approvals.Config) { c.ApprovalLife = time.Millisecond },
		"a very long life":        func(c *approvals.Config) { c.ApprovalLife = 15 * 24 * time.Hour },
		"no pause":                func(c *approvals.Config) { c.NoticeRetry = 0 },
		"a console in a folder":   func(c *approvals.Config) { c.ConsoleURL = "https://example.com/console?x" },
		"a console of no scheme":  func(c *approvals.Config) { c.ConsoleURL = "javascript:alert(1)" },
		"mail in the clear":       func(c *approvals.Config) { c.SMTPHost, c.SMTPSecurity = "mail.example.com", "none" },
		"mail of no way":          func(c *approvals.Config) { c.SMTPHost, c.SMTPSecurity = "mail.example.com", "tls" },
		"mail from nobody":        func(c *approvals.Config) { c.SMTPHost, c.SMTPFrom = "mail.example.com", "" },
		"mail without a password": func(c *approvals.Config) { c.SMTPHost, c.SMTPUsername = "mail.example.com", "warden" },
		"a password elsewhere": func(c *approvals.Config) {
			c.SMTPHost, c.SMTPUsername, c.SMTPPasswordFile = "mail.example.com", "warden", "/nowhere"
		},
		"no port":         func(c *approvals.Config) { c.SMTPHost, c.SMTPPort = "mail.example.com", 0 },
		"no certificates": func(c *approvals.Config) { c.SMTPHost, c.SMTPCAFile = "mail.example.com", "/nowhere" },
	} {
		c := config(time.Hour)
		c.SMTP = approvals.SMTP{SMTPPort: 587, SMTPSecurity: "starttls", SMTPFrom: "warden@example.com"}
		change(&c)
		if _, err := approvals.New(c, boot.Deps{}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
