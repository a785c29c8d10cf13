package toolbroker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// check asks the broker about edited arguments, as approvals does.
func (h *house) check(held call.Held, args string) (ask.CheckedEdit, error) {
	h.t.Helper()
	return rpc.Ask[ask.CheckedEdit](h.t.Context(), h.Conn(h.t, string(schemas.Approvals)), schemas.Toolbroker, "edit_check",
		rpc.Caller{Tenant: servicekit.Tenant, Actor: "service:approvals"}, ask.CheckEdit{Run: held.Run, Call: held.Call, Requested: held.Requested, Args: json.RawMessage(args)})
}

// edit says that a member edited a held call, and gives the sequence of that.
func (h *house) edit(held call.Held, digest, args string) (id.Approval, uint64) {
	h.t.Helper()
	a := id.Derive[id.Approval](string(held.Call))
	return a, h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Edited{Approval: a, Call: held.Call, Run: held.Run, Digest: digest, By: "mem_x", Body: approval.Change{Args: json.RawMessage(args)}}})
}

func (h *house) approveEdit(held call.Held, a id.Approval, digest string, seq uint64) {
	h.t.Helper()
	h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: held.Call, Run: held.Run, Digest: digest, Approved: true, By: "mem_y", Requested: held.Requested, Edited: seq}})
}

const editedArgs = `{"owner":"acme","repo":"shop","issue_number":8,"body":"On it, politely <b>&"}`

// What a member edited and approved is what the provider is sent, and what the permit is for.
func TestEditedArgumentsAreActedOn(t *testing.T) {
	h := start(t)
	var sent atomic.Value
	h.says(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent.Store(r.URL.Path + " " + string(raw))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":42}`)
	})
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	seq := h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	checked, err := h.check(held, editedArgs)
	if err != nil || checked.Digest == "" || checked.Digest == held.Digest || checked.Grant != "grt_comment" || strings.Contains(string(checked.Args), "<") {
		t.Fatalf("%+v, %v", checked, err)
	}
	a, at := h.edit(held, checked.Digest, string(checked.Args))
	h.approveEdit(held, a, checked.Digest, at)
	await[call.Finished](h, "call_1")
	if got := sent.Load().(string); !strings.Contains(got, "/issues/8/") || !strings.Contains(got, "politely") {
		t.Errorf("GitHub is sent %s", got)
	}
	admitted, admission := await[call.Admitted](h, "call_1")
	keys := h.Events(schemas.Control, "key.published")
	if admitted.Edited != at || admitted.Requested != seq || admitted.Approval != a || string(admitted.Body.Args) != string(checked.Args) || len(keys) == 0 {
		t.Errorf("%+v at %d", admitted, admission.Seq)
	}
	if got, _ := await[call.Requested](h, "call_1"); !strings.Contains(string(got.Body.Args), "On it \\u003cb") {
		t.Errorf("the request has become %s", got.Body.Args)
	}
}

// Large ones are kept apart in the edit and in the admission, and acted on all the same.
func TestLargeEditedArguments(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	body := strings.Repeat("y", 60<<10) // GitHub's own bound is near
	checked, err := h.check(held, `{"owner":"acme","repo":"shop","issue_number":8,"body":"`+body+`"}`+strings.Repeat(" ", 100<<10))
	if err != nil {
		t.Fatal(err)
	}
	a, at := h.edit(held, checked.Digest, string(checked.Args))
	h.approveEdit(held, a, checked.Digest, at)
	await[call.Finished](h, "call_1")

	// A script may be longer.
	h.grant("grt_script", "runtime.run_javascript", grant.Always)
	h.request("call_2", "runtime.run_javascript", `{"source":"1"}`, nil)
	held, _ = await[call.Held](h, "call_2")
	checked, err = h.check(held, `{"source":"return 2//`+strings.Repeat("y", 200<<10)+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	a, at = h.edit(held, checked.Digest, string(checked.Args))
	h.approveEdit(held, a, checked.Digest, at)
	if admitted, _ := await[call.Admitted](h, "call_2"); string(admitted.Body.Args) != string(checked.Args) {
		t.Errorf("%.100s", admitted.Body.Args)
	}
}

func TestEditIsChecked(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	for name, c := range map[string]struct {
		args   string
		change func(*call.Held)
		want   problem.Code
	}{
		"another repository":    {strings.Replace(editedArgs, "shop", "secrets", 1), nil, problem.Denied},
		"no object":             {`[]`, nil, problem.Invalid},
		"a name twice":          {`{"owner":"acme","owner":"evil"}`, nil, problem.Invalid},
		"much too large":        {`{"body":"` + strings.Repeat("x", 300<<10) + `"}`, nil, problem.TooLarge},
		"another call":          {editedArgs, func(h *call.Held) { h.Call = "call_none" }, problem.Conflict},
		"another request":       {editedArgs, func(h *call.Held) { h.Requested++ }, problem.Conflict},
		"another run's subject": {editedArgs, func(h *call.Held) { h.Run = "run_other" }, problem.Conflict},
	} {
		of := held
		if c.change != nil {
			c.change(&of)
		}
		if _, err := h.check(of, c.args); problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := rpc.Ask[ask.CheckedEdit](t.Context(), h.Conn(t, string(schemas.Approvals)), schemas.Toolbroker, "edit_check", rpc.Caller{Tenant: "tnt_b"},
		ask.CheckEdit{Run: held.Run, Call: held.Call, Requested: held.Requested, Args: json.RawMessage(editedArgs)}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("another tenant: %v", err)
	}
	// What asks nobody still waits, since somebody edited it.
	h.grant("grt_free", "github.add_issue_comment", grant.Never)
	if checked, err := h.check(held, editedArgs); err != nil || checked.Grant != "grt_free" || checked.Reason == "" {
		t.Errorf("%+v, %v", checked, err)
	}
	h.revoke("grt_free")
	h.decide(held, held.Digest, false)
	await[call.Refused](h, "call_1")
	if _, err := h.check(held, editedArgs); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a call that does not wait: %v", err)
	}
}

// The broker takes no edit on trust: not one of another call or approval, none that is not there, and none whose
// arguments are not those whose digest was approved.
func TestEditsThatDoNotHold(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	held := map[id.Call]call.Held{}
	for _, c := range []id.Call{"call_digest", "call_other", "call_none", "call_kind", "call_revoked", "call_outside"} {
		h.request(c, "github.add_issue_comment", commentArgs, nil)
		held[c], _ = await[call.Held](h, c)
	}
	checked, err := h.check(held["call_digest"], editedArgs)
	if err != nil {
		t.Fatal(err)
	}
	a, at := h.edit(held["call_digest"], checked.Digest, commentArgs) // other arguments than the digest's
	h.approveEdit(held["call_digest"], a, checked.Digest, at)

	h.approveEdit(held["call_other"], id.Derive[id.Approval]("call_other"), checked.Digest, at) // call_digest's edit
	h.approveEdit(held["call_none"], id.Derive[id.Approval]("call_none"), checked.Digest, 1<<40)
	h.approveEdit(held["call_kind"], id.Derive[id.Approval]("call_kind"), checked.Digest, held["call_kind"].Requested)

	outside := strings.Replace(editedArgs, "shop", "secrets", 1)
	a, at = h.edit(held["call_outside"], permit.Digest([]byte(outside)), outside) // never checked
	h.approveEdit(held["call_outside"], a, permit.Digest([]byte(outside)), at)
	for c, code := range map[id.Call]problem.Code{"call_digest": problem.Conflict, "call_other": problem.Conflict, "call_none": problem.Conflict, "call_kind": problem.Conflict, "call_outside": problem.Denied} {
		if got, _ := await[call.Refused](h, c); got.Code != string(code) {
			t.Errorf("%s: %+v, want %s", c, got, code)
		}
	}
	// The grant is looked at again when somebody has decided.
	a, at = h.edit(held["call_revoked"], checked.Digest, string(checked.Args))
	h.revoke("grt_comment")
	h.approveEdit(held["call_revoked"], a, checked.Digest, at)
	if got, _ := await[call.Refused](h, "call_revoked"); got.Code != string(problem.Denied) {
		t.Errorf("%+v", got)
	}
	if h.effects.Load() != 0 {
		t.Errorf("%d effects", h.effects.Load())
	}
}

// An edit after which the grant asks nobody is approved for the one call: for the rest of the run it would let through
// what the grant does ask about, which nobody was told of.
func TestForTheRunOfWhatAsksNobody(t *testing.T) {
	h := start(t)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_comment", Event: grant.Created{Grant: "grt_comment", Agent: "agt_a",
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"acme/shop"}}, Approval: grant.When, ApproveWhen: "args.issue_number == 7"}}))
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	checked, err := h.check(held, editedArgs)
	if err != nil || !strings.Contains(checked.Reason, "asks nobody") {
		t.Fatalf("%+v, %v", checked, err)
	}
	a, at := h.edit(held, checked.Digest, string(checked.Args))
	h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: held.Call, Run: held.Run, Digest: checked.Digest, Approved: true, ForRun: true, By: "mem_y", Requested: held.Requested, Edited: at}})
	await[call.Finished](h, "call_1")
	h.request("call_2", "github.add_issue_comment", commentArgs, nil)
	await[call.Held](h, "call_2")
}

// That the grant asks nobody about the arguments makes no decision on another edit one on this.
func TestDecisionOnAnotherEdit(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_1")
	h.grant("grt_free", "github.add_issue_comment", grant.Never)
	checked, err := h.check(held, editedArgs)
	if err != nil {
		t.Fatal(err)
	}
	a, at := h.edit(held, checked.Digest, string(checked.Args))
	h.approveEdit(held, a, permit.Digest([]byte("what was looked at")), at)
	if got, _ := await[call.Refused](h, "call_1"); got.Code != string(problem.Conflict) {
		t.Errorf("%+v", got)
	}
	if h.effects.Load() != 0 {
		t.Errorf("%d effects", h.effects.Load())
	}
}
