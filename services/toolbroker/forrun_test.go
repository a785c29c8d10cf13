package toolbroker_test

import (
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// approveForRun says that a member approved a held call and those like it.
func (h *house) approveForRun(held call.Held, digest string) {
	h.t.Helper()
	a := id.Derive[id.Approval](string(held.Call), digest)
	h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: held.Call, Run: held.Run, Digest: digest, Approved: true, ForRun: true, By: "mem_x", Requested: held.Requested}})
}

// One approval for the rest of the run lets later calls like it through, and only those, until the grant is revoked.
func TestApprovedForTheRun(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	h.approveForRun(held, held.Digest)
	await[call.Finished](h, "call_1")
	if admitted, _ := await[call.Admitted](h, "call_1"); admitted.ForRun == "" || admitted.Approval == "" {
		t.Errorf("%+v", admitted)
	}
	h.request("call_2", "github.add_issue_comment", strings.Replace(commentArgs, "On it", "Done", 1), nil)
	await[call.Finished](h, "call_2")
	if admitted, _ := await[call.Admitted](h, "call_2"); admitted.ForRun != "" || admitted.Approval != "" {
		t.Errorf("what was let through lets more through: %+v", admitted)
	}
	// Another run is asked about again.
	raw := strings.Replace(commentArgs, "On it", "Elsewhere", 1)
	h.requestIn("run_2", "call_3", "github.add_issue_comment", raw)
	await[call.Held](h, "call_3")
	// So is the same grant, made again; and a revoked one refuses.
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_4", "github.add_issue_comment", raw, nil)
	await[call.Held](h, "call_4")
	h.revoke("grt_comment")
	h.request("call_5", "github.add_issue_comment", raw, nil)
	await[call.Refused](h, "call_5")
	if h.effects.Load() != 2 {
		t.Errorf("%d effects, want 2", h.effects.Load())
	}
}

// What was approved for the run and then was not what would run lets nothing through: only an admission does.
func TestForTheRunWithoutAnAdmission(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	h.approveForRun(held, "another digest")
	await[call.Refused](h, "call_1")
	h.request("call_2", "github.add_issue_comment", commentArgs, nil)
	await[call.Held](h, "call_2")
}

// The broker ends between the decision and its admission, and after it: either way the next broker goes on from what is
// stored. Not stored: the decision is heard again, and the call is made once. Stored: later calls of the run are let
// through by a broker that never heard the decision.
func TestForTheRunSurvivesTheBroker(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	h.stop()
	h.approveForRun(held, held.Digest) // not heard by anybody
	h.run()
	await[call.Finished](h, "call_1")
	h.stop()
	h.run()
	h.request("call_2", "github.add_issue_comment", commentArgs, nil)
	await[call.Finished](h, "call_2")
	if got := len(h.Events(schemas.Activity, "call.held")); got != 1 || h.effects.Load() != 2 {
		t.Errorf("held %d times, %d effects", got, h.effects.Load())
	}
}

// A limit of the grant counts the calls that an approval for the run lets through.
func TestForTheRunKeepsTheLimits(t *testing.T) {
	h := start(t)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_comment", Event: grant.Created{Grant: "grt_comment", Agent: "agt_a", Approval: grant.Always, Tainted: true,
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"acme/shop"}}, Limits: grant.Limits{PerRun: 2}}}))
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	h.approveForRun(held, held.Digest)
	await[call.Finished](h, "call_1")
	h.request("call_2", "github.add_issue_comment", commentArgs, nil)
	await[call.Finished](h, "call_2")
	h.request("call_3", "github.add_issue_comment", commentArgs, nil)
	if got, _ := await[call.Refused](h, "call_3"); !strings.Contains(got.Reason, "used up") {
		t.Errorf("%+v", got)
	}
}
