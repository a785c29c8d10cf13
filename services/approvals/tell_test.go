package approvals_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/services/approvals"
)

// hook is a receiver of webhooks that answers as it is told, and remembers.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(n int) int // the status of the n-th request, counted from 1
	got    []hooked
}

type hooked struct {
	id, body string
}

func newHook(t *testing.T, answer func(n int) int) *hook {
	t.Helper()
	k := &hook{answer: answer}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		k.mu.Lock()
		k.got = append(k.got, hooked{r.Header.Get("webhook-id"), string(body)})
		n := len(k.got)
		k.mu.Unlock()
		w.WriteHeader(k.answer(n))
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *hook) all() []hooked {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]hooked(nil), k.got...)
}

func (k *hook) private() []string { return []string{strings.TrimPrefix(k.URL, "http://")} }

func ok(int) int { return 200 }

// define asks until the service's view is current: before, it answers nobody.
func (h *house) define(who rpc.Caller, q ask.DefineTarget) (d ask.DefinedTarget, err error) {
	h.t.Helper()
	buskit.Eventually(h.t, "the service answers", func() bool {
		var raw json.RawMessage
		if raw, err = h.ask("target_define", who, q); err == nil {
			err = json.Unmarshal(raw, &d)
		}
		return problem.CodeOf(err) != problem.Unavailable
	})
	return d, err
}

// told defines a webhook target, and waits until the service knows it.
func (h *house) told(name id.Target, k *hook, change func(*target.Defined)) {
	h.t.Helper()
	def := target.Defined{Target: name, Type: target.Webhook, Private: k.private()}
	if change != nil {
		change(&def)
	}
	if _, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: def, Address: k.URL + "/secret-path"}); err != nil {
		h.t.Fatal(err)
	}
	buskit.Eventually(h.t, "the target is known", func() bool {
		_, err := h.ask("target_test", servicekit.Owner(), ask.TestTarget{Target: name})
		return problem.CodeOf(err) != problem.NotFound
	})
	k.mu.Lock()
	k.got = nil
	k.mu.Unlock()
}

// count counts events of notices of a target.
func (h *house) count(kind string, name id.Target) (n int) {
	for _, e := range h.Events(schemas.Activity, kind) {
		if e.At.Key == string(name) {
			n++
		}
	}
	return n
}

func (h *house) await(kind string, name id.Target, n int) {
	h.t.Helper()
	buskit.Eventually(h.t, fmt.Sprintf("%d %s to %s", n, kind, name), func() bool { return h.count(kind, name) >= n })
}

func TestApproversAreTold(t *testing.T) {
	h := start(t, time.Hour)
	all, late, full := newHook(t, ok), newHook(t, ok), newHook(t, ok)
	h.told("tgt_all", all, nil)
	h.told("tgt_late", late, func(d *target.Defined) { d.About = []target.About{target.Escalated} })
	h.told("tgt_full", full, func(d *target.Defined) { d.Arguments = true; d.About = []target.About{target.Requested} })
	r := h.hold("call_1", `{"password":"canary-argument"}`)
	h.await("notice.sent", "tgt_all", 1)
	h.await("notice.sent", "tgt_full", 1)
	if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest}); err != nil {
		t.Fatal(err)
	}
	h.await("notice.sent", "tgt_all", 2)
	got := all.all()
	if len(got) != 2 || !strings.Contains(got[0].body, `"type":"approval.requested"`) || !strings.Contains(got[0].body, `"state":"waiting"`) ||
		!strings.Contains(got[0].body, `"link":"https://warden.example.com/approvals/`+string(r.Approval)+`"`) ||
		!strings.Contains(got[1].body, `"type":"approval.decided"`) || !strings.Contains(got[1].body, `"state":"denied"`) || got[0].id == got[1].id {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got[0].body+got[1].body, "canary-argument") || !strings.Contains(full.all()[0].body, "canary-argument") {
		t.Errorf("arguments: %+v and %+v", got, full.all())
	}
	if len(late.all()) != 0 {
		t.Errorf("%+v", late.all())
	}
	sent, at := servicekit.Await[notice.Sent](h.Kit, 1, func(s notice.Sent) bool { return s.Target == "tgt_all" })
	if sent.Attempts != 1 || sent.Approval != r.Approval || sent.About != target.Requested || string(sent.Notice) != got[0].id || at.Envelope.Run != "run_1" {
		t.Errorf("%+v", sent)
	}
	// An escalation is told too.
	h.escalating("call_2")
	h.await("notice.sent", "tgt_late", 1)
	// Neither addresses nor arguments are in the events of targets and notices.
	for _, stream := range []schemas.Stream{schemas.Control, schemas.Activity} {
		for _, e := range h.Events(stream) {
			if (e.At.Noun == "target" || e.At.Noun == "notice") && (strings.Contains(string(e.Raw), "secret-path") || strings.Contains(string(e.Raw), "canary") || strings.Contains(string(e.Raw), "whsec_")) {
				t.Errorf("%s tells %s", e.At, e.Raw)
			}
		}
	}
}

// One target that is dead, and one that refuses, delay neither the others nor the decision.
func TestDeadTargets(t *testing.T) {
	h := start(t, time.Hour)
	dead, gone, well := newHook(t, func(int) int { return 503 }), newHook(t, func(int) int { return 410 }), newHook(t, ok)
	h.told("tgt_dead", dead, nil)
	h.told("tgt_gone", gone, nil)
	h.told("tgt_well", well, nil)
	var held []approval.Requested
	for i := range 5 {
		held = append(held, h.hold(id.Call(fmt.Sprint("call_", i)), `{}`))
	}
	h.await("notice.sent", "tgt_well", 5)
	h.await("notice.failed", "tgt_gone", 5)
	h.await("notice.retried", "tgt_dead", 1)
	retried, _ := servicekit.Await[notice.Retried](h.Kit, 1, nil)
	if retried.Target != "tgt_dead" || retried.Reason != "it answered 503" || retried.Attempt != 1 || retried.NextAt.IsZero() {
		t.Errorf("%+v", retried)
	}
	for _, r := range held {
		if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true}); err != nil {
			t.Fatal(err)
		}
	}
	h.await("notice.sent", "tgt_well", 10)
	// What waits no longer is not told as waiting: those notices are given up, one after the other.
	h.await("notice.failed", "tgt_dead", 5)
	failed, _ := servicekit.Await[notice.Failed](h.Kit, 1, func(f notice.Failed) bool { return f.Target == "tgt_dead" })
	if failed.Reason != "it does not wait any more" {
		t.Errorf("%+v", failed)
	}
	first := ""
	for _, got := range dead.all() {
		if first == "" {
			first = got.id
		}
		if strings.Contains(got.body, "approval.requested") && got.id != first {
			t.Errorf("a target that is away is asked for %s beside %s", got.id, first)
		}
	}
}

// A notice is sent until it is taken, always under its id.
func TestRetriedUntilTaken(t *testing.T) {
	h := start(t, time.Hour)
	k := newHook(t, func(n int) int {
		if n < 4 { // the test of the definition counts
			return 500
		}
		return 204
	})
	h.told("tgt_a", k, nil)
	h.hold("call_1", `{}`)
	sent, _ := servicekit.Await[notice.Sent](h.Kit, 1, nil)
	got := k.all()
	for _, g := range got {
		if g.id != string(sent.Notice) {
			t.Errorf("%s is sent as %s", sent.Notice, g.id)
		}
	}
	if sent.Attempts != len(got) || sent.Attempts < 2 {
		t.Errorf("%+v, %d requests", sent, len(got))
	}
}

// The service ends after the target took a notice and before that was recorded: it is sent again under the same id. It
// ends with one recorded: that is not sent again. Notices that nobody sent yet are found by the next process.
func TestTellingSurvivesARestart(t *testing.T) {
	h := start(t, time.Hour)
	k := newHook(t, func(int) int { return 503 })
	h.told("tgt_a", k, nil)
	r := h.hold("call_1", `{}`)
	h.await("notice.retried", "tgt_a", 1)
	h.stop()
	queued, _ := servicekit.Await[notice.Queued](h.Kit, 1, nil)
	// One that an earlier life sent and recorded, and one that it sent and did not record.
	h.Say(schemas.Approvals, eventlog.Draft{Key: "tgt_a", Event: notice.Queued{Notice: "ntc_recorded", Target: "tgt_a", About: target.Requested, Approval: r.Approval, Owner: "an earlier life"}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "tgt_a", Event: notice.Sent{Notice: "ntc_recorded", Target: "tgt_a", About: target.Requested, Approval: r.Approval, Attempts: 1}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "tgt_a", Event: notice.Queued{Notice: "ntc_unrecorded", Target: "tgt_a", About: target.Requested, Approval: r.Approval, Owner: "an earlier life"}})
	k.mu.Lock()
	k.answer, k.got = ok, nil
	k.mu.Unlock()
	s, err := approvals.New(config(time.Hour), h.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	h.Run(s)
	for _, n := range []id.Notice{queued.Notice, "ntc_unrecorded"} {
		if sent, _ := servicekit.Await[notice.Sent](h.Kit, 1, func(s notice.Sent) bool { return s.Notice == n }); sent.Target != "tgt_a" {
			t.Errorf("%+v", sent)
		}
	}
	for _, got := range k.all() {
		if got.id == "ntc_recorded" {
			t.Error("what was recorded as sent is sent again")
		}
	}
}

func TestTargets(t *testing.T) {
	h := start(t, time.Hour)
	k := newHook(t, ok)
	good := ask.DefineTarget{Target: target.Defined{Target: "tgt_a", Type: target.Webhook, Private: k.private()}, Address: k.URL + "/x"}
	for name, c := range map[string]struct {
		who    rpc.Caller
		change func(*ask.DefineTarget)
		want   problem.Code
	}{
		"an approver":           {servicekit.Caller("mem_x", member.Approver), nil, problem.Denied},
		"an auditor":            {servicekit.Caller("mem_x", member.Auditor), nil, problem.Denied},
		"an id that is not one": {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.Target = "tgt_*" }, problem.Invalid},
		"another type":          {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.Type = "pigeon" }, problem.Invalid},
		"no address":            {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address = "" }, problem.Invalid},
		"no URL":                {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address = "oncall@example.com" }, problem.Invalid},
		"a file":                {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address = "file:///etc/passwd" }, problem.Invalid},
		"a user in the URL":     {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address = "https://a:b@example.com/" }, problem.Invalid},
		"http to anybody":       {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address, q.Target.Private = "http://example.com/", nil }, problem.Invalid},
		"a very long URL":       {servicekit.Owner(), func(q *ask.DefineTarget) { q.Address = "https://example.com/" + strings.Repeat("x", 4<<10) }, problem.Invalid},
		"a weak secret":         {servicekit.Owner(), func(q *ask.DefineTarget) { q.Secret = "whsec_c2hvcnQ=" }, problem.Invalid},
		"a secret for a chat": {servicekit.Owner(), func(q *ask.DefineTarget) {
			q.Target.Type, q.Secret = target.Slack, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
		}, problem.Invalid},
		"about something else": {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.About = []target.About{"weather"} }, problem.Invalid},
		"about the same twice": {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.About = []target.About{"decided", "decided"} }, problem.Invalid},
		"a private range":      {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.Private = []string{"10.0.0.0/8"} }, problem.Invalid},
		"mail without a server": {servicekit.Owner(), func(q *ask.DefineTarget) {
			q.Target = target.Defined{Target: "tgt_a", Type: target.Mail}
			q.Address = "a@example.com"
		}, problem.Invalid},
		"removing what is not": {servicekit.Owner(), func(q *ask.DefineTarget) { q.Target.Removed = true }, problem.NotFound},
	} {
		q := good
		if c.change != nil {
			c.change(&q)
		}
		_, err := h.define(c.who, q)
		if problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "oncall@") || strings.Contains(err.Error(), "a:b@")) {
			t.Errorf("%s: the error repeats the address: %v", name, err)
		}
	}
	if n := len(h.Events(schemas.Control, "target.defined")); n != 0 {
		t.Fatalf("%d are recorded", n)
	}
	made, err := h.define(servicekit.Owner(), good)
	if err != nil || !strings.HasPrefix(made.Secret, "whsec_") {
		t.Fatalf("%+v, %v", made, err)
	}
	buskit.Eventually(t, "it is known", func() bool {
		_, err := h.ask("target_test", servicekit.Owner(), ask.TestTarget{Target: "tgt_a"})
		return err == nil
	})
	if _, err := h.ask("target_test", rpc.Caller{Tenant: "tnt_b", Actor: "mem_x", Role: "owner"}, ask.TestTarget{Target: "tgt_a"}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("another tenant tests it: %v", err)
	}
	// A change keeps address and secret, and shows no secret again.
	again, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: target.Defined{Target: "tgt_a", Type: target.Webhook, Private: k.private(), About: []target.About{target.Decided}}})
	if err != nil || again.Secret != "" {
		t.Errorf("%+v, %v", again, err)
	}
	if def, _ := servicekit.Await[target.Defined](h.Kit, 2, nil); def.Host != k.private()[0] || len(def.About) != 1 || def.Fingerprint == "" {
		t.Errorf("%+v", def)
	}
	// Removed, its address is gone.
	if _, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: target.Defined{Target: "tgt_a", Removed: true}}); err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), h.Conn(t, string(schemas.Approvals)), h.Master)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), servicekit.Tenant, "tgt_a"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("the address is still there: %v", err)
	}
	buskit.Eventually(t, "it is removed", func() bool {
		_, err := h.ask("target_test", servicekit.Owner(), ask.TestTarget{Target: "tgt_a"})
		return problem.CodeOf(err) == problem.NotFound
	})
}

// Addresses that are not public are not reached unless they are named, whatever a target is called.
func TestTargetsReachNoInside(t *testing.T) {
	h := start(t, time.Hour)
	inside := newHook(t, ok)
	u, err := url.Parse(inside.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range []string{"https://" + u.Host, "http://localhost:" + port + "/", "http://[::ffff:127.0.0.1]:" + port, "https://169.254.169.254/latest/meta-data"} {
		name := id.Target(fmt.Sprint("tgt_", i))
		def := target.Defined{Target: name, Type: target.Webhook, Private: []string{"127.0.0.1:1"}}
		if _, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: def, Address: address}); err != nil {
			t.Fatal(err)
		}
		buskit.Eventually(t, "it is refused", func() bool {
			_, err := h.ask("target_test", servicekit.Owner(), ask.TestTarget{Target: name})
			return problem.CodeOf(err) == problem.Upstream
		})
	}
	if n := len(inside.all()); n != 0 {
		t.Errorf("what is inside was asked %d times", n)
	}
}

// The fingerprint of a mail address is in an event for good, so it confirms no guess of the address; it stays the same
// while the address does.
func TestFingerprintConfirmsNoAddress(t *testing.T) {
	t.Parallel()
	h := &house{Kit: servicekit.Start(t), t: t}
	cfg := config(time.Hour)
	cfg.SMTP = approvals.SMTP{SMTPHost: "127.0.0.1", SMTPPort: 25, SMTPSecurity: "none", SMTPFrom: "warden@example.com"}
	s, err := approvals.New(cfg, h.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	h.stop = h.Run(s)
	conn := h.Conn(t, string(schemas.Gateway))
	h.ask = func(method string, who rpc.Caller, q any) (json.RawMessage, error) {
		return rpc.Ask[json.RawMessage](t.Context(), conn, schemas.Approvals, method, who, q)
	}
	fingerprint := func(n int, name id.Target, address string) string {
		t.Helper()
		d, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: target.Defined{Target: name, Type: target.Mail}, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		buskit.Eventually(t, "the service has heard it", func() bool {
			_, err := rpc.Ask[ask.Sequence](t.Context(), conn, schemas.Approvals, schemas.Barrier, servicekit.Owner(), ask.Sequence{Seq: d.Seq})
			return err == nil
		})
		def, _ := servicekit.Await[target.Defined](h.Kit, n, nil)
		return def.Fingerprint
	}
	const address = "lead@example.com"
	first := fingerprint(1, "tgt_lead", address)
	for _, guess := range []string{address, `{"address":"` + address + `"}`} {
		if first == vault.Fingerprint(vault.NewSecret(guess)) {
			t.Errorf("%s confirms %s", first, guess)
		}
	}
	if again := fingerprint(2, "tgt_lead", address); again != first {
		t.Errorf("the same address had fingerprint %s and has %s", first, again)
	}
	if other := fingerprint(3, "tgt_lead", "other@example.com"); other == first {
		t.Error("another address has the same fingerprint")
	}
	if other := fingerprint(4, "tgt_other", address); other == first {
		t.Error("whoever knows one target's address knows that of others with the same")
	}
}

// An address is sealed before the definition that it is of is said. In between, and after a crash there, the definition in
// force is of another address: nothing is sent by it, and no notice given up.
func TestAddressOfAnotherDefinition(t *testing.T) {
	h := start(t, time.Hour)
	k := newHook(t, ok)
	h.told("tgt_a", k, nil)
	v, err := vault.Open(t.Context(), h.Conn(t, string(schemas.Approvals)), h.Master)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Put(t.Context(), servicekit.Tenant, "tgt_a", vault.NewSecret(`{"address":"lead@example.com"}`)); err != nil { // of a target of type mail
		t.Fatal(err)
	}
	h.hold("call_1", `{}`)
	h.await("notice.queued", "tgt_a", 1)
	if _, err := h.ask("target_test", servicekit.Owner(), ask.TestTarget{Target: "tgt_a"}); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a test while the address is another's: %v", err)
	}
	if _, err := h.define(servicekit.Owner(), ask.DefineTarget{Target: target.Defined{Target: "tgt_a", Type: target.Webhook, Private: k.private()}, Address: k.URL + "/secret-path"}); err != nil {
		t.Fatal(err)
	}
	h.await("notice.sent", "tgt_a", 1)
	if n := h.count("notice.failed", "tgt_a"); n != 0 {
		t.Errorf("%d were given up", n)
	}
}
