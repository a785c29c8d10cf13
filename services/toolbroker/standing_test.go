package toolbroker_test

import (
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// While the broker was away a call was approved, and then one of those who approved it was removed: it runs only if
// enough of them are members still.
func TestApprovedByThoseWhoWereRemoved(t *testing.T) {
	h := start(t)
	h.grant("grt_read", "github.issue_read", grant.Always)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_comment", Event: grant.Created{Grant: "grt_comment", Agent: "agt_a",
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"acme/shop"}}, Approval: grant.Always, Quorum: 2}}))
	held := map[id.Call]call.Held{}
	for _, c := range []id.Call{"call_gone", "call_other"} {
		h.request(c, "github.issue_read", readArgs, nil)
		held[c], _ = await[call.Held](h, c)
	}
	for _, c := range []id.Call{"call_two", "call_three"} {
		h.request(c, "github.add_issue_comment", commentArgs, nil)
		held[c], _ = await[call.Held](h, c)
	}
	h.stop()
	for c, by := range map[id.Call][]id.Member{"call_gone": {"mem_gone"}, "call_other": {"mem_x"}, "call_two": {"mem_gone", "mem_x"}, "call_three": {"mem_gone", "mem_y", "mem_x"}} {
		was := held[c]
		a := id.Derive[id.Approval](string(c), was.Digest)
		for _, m := range by[:len(by)-1] {
			h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Voted{Approval: a, Call: c, Run: was.Run, Digest: was.Digest, By: m}})
		}
		h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: c, Run: was.Run, Digest: was.Digest, Approved: true, By: by[len(by)-1], Requested: was.Requested}})
	}
	h.Say(schemas.Gateway, eventlog.Draft{Key: "mem_gone", Event: member.Removed{Member: "mem_gone"}})
	h.Say(schemas.Gateway, eventlog.Draft{Tenant: "tnt_b", Key: "mem_x", Event: member.Removed{Member: "mem_x"}}) // another tenant's
	h.run()
	for _, c := range []id.Call{"call_gone", "call_two"} {
		if got, _ := await[call.Refused](h, c); got.Code != string(problem.Denied) {
			t.Errorf("%s: %+v", c, got)
		}
	}
	await[call.Finished](h, "call_other")
	await[call.Finished](h, "call_three")
	if n := h.effects.Load(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Nor does the word of one count who may not approve any more, or not what the grant wants an admin for.
func TestApprovedByThoseWhoWereNarrowed(t *testing.T) {
	h := start(t)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_read", Event: grant.Created{Grant: "grt_read", Agent: "agt_a",
		Selector: grant.Selector{Tool: "github.issue_read", Repos: []string{"acme/shop"}}, Approval: grant.Always, Approver: member.Admin}}))
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	held := map[id.Call]call.Held{}
	asked := map[id.Call]struct {
		tool, args string
		by         id.Member
	}{
		"call_narrow": {"github.issue_read", readArgs, "mem_approver"}, "call_admin": {"github.issue_read", readArgs, "mem_admin"},
		"call_auditor": {"github.add_issue_comment", commentArgs, "mem_auditor"}, "call_approver": {"github.add_issue_comment", commentArgs, "mem_approver"},
	}
	for c, q := range asked {
		h.request(c, q.tool, q.args, nil)
		held[c], _ = await[call.Held](h, c)
	}
	h.stop()
	for c, q := range asked {
		was := held[c]
		a := id.Derive[id.Approval](string(c), was.Digest)
		h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: c, Run: was.Run, Digest: was.Digest, Approved: true, By: q.by, Requested: was.Requested, ForRun: true}})
	}
	for _, m := range []id.Member{"mem_approver", "mem_admin", "mem_auditor"} {
		h.Say(schemas.Gateway, eventlog.Draft{Key: string(m), Event: member.Added{Member: m, Role: member.Owner}})
		h.Say(schemas.Gateway, eventlog.Draft{Key: string(m), Event: member.Added{Member: m, Role: member.Role(id.Name(m))}})
	}
	h.run()
	for _, c := range []id.Call{"call_narrow", "call_auditor"} {
		if got, _ := await[call.Refused](h, c); got.Code != string(problem.Denied) {
			t.Errorf("%s: %+v", c, got)
		}
	}
	if got, _ := await[call.Admitted](h, "call_admin"); got.ForRun == "" {
		t.Errorf("an admin approved it for the run: %+v", got)
	}
	if got, _ := await[call.Admitted](h, "call_approver"); got.ForRun != "" {
		t.Errorf("who may not grant any more approved it for the run: %+v", got)
	}
}

// Nor is one made on what was approved and then expired, because the broker was away for days: who approved it meant
// then, and not now.
func TestApprovedAndExpiredSince(t *testing.T) {
	h := start(t)
	h.grant("grt_read", "github.issue_read", grant.Always)
	held := map[id.Call]call.Held{}
	for _, c := range []id.Call{"call_late", "call_intime"} {
		h.request(c, "github.issue_read", readArgs, nil)
		held[c], _ = await[call.Held](h, c)
	}
	h.stop()
	for c, expires := range map[id.Call]time.Duration{"call_late": -time.Second, "call_intime": time.Hour} {
		was := held[c]
		a := id.Derive[id.Approval](string(c), was.Digest)
		h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Requested{Approval: a, Call: c, Run: was.Run, Digest: was.Digest, Requested: was.Requested, ExpiresAt: time.Now().Add(expires)}})
		h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: c, Run: was.Run, Digest: was.Digest, Approved: true, By: "mem_x", Requested: was.Requested}})
	}
	h.run()
	if got, _ := await[call.Refused](h, "call_late"); got.Code != string(problem.Expired) {
		t.Errorf("%+v", got)
	}
	await[call.Finished](h, "call_intime")
}
