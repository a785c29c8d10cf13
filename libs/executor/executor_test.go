package executor_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a gate of the broker, and whoever writes what it hears.
type house struct {
	*servicekit.Kit
	t       *testing.T
	gate    *executor.Gate
	view    *eventlog.View
	private ed25519.PrivateKey
	granted uint64 // control sequence of the grant
}

func start(t *testing.T) *house {
	t.Helper()
	t.Parallel()
	k := servicekit.Start(t)
	d := k.Deps(schemas.Toolbroker)
	h := &house{Kit: k, t: t, private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))}
	h.gate = executor.New(call.Upstream, d.Conn, d.Log, d.Root)
	h.view = d.View(func(e eventlog.Stored) {
		if err := h.gate.Apply(e); err != nil {
			t.Logf("key not trusted: %v", err)
		}
	})
	h.gate.Follow(h.view)
	if err := h.gate.OpenClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.publish("key_broker", h.private, k.Root)
	h.granted = k.Say(schemas.Approvals, eventlog.Draft{Key: "grt_1", Event: grant.Created{Grant: "grt_1", Agent: "agt_a"}})
	k.Run(h.view)
	buskit.Eventually(t, "the gate is current", func() bool { return h.view.Current() == nil && h.view.Seq() >= h.granted })
	return h
}

func (h *house) publish(name id.Key, private, root ed25519.PrivateKey) {
	p := key.Published{Key: name, Purpose: permit.Purpose, Public: private.Public().(ed25519.PublicKey), NotBefore: time.Now().UTC()}
	p.Signature = ed25519.Sign(root, p.SignedBytes())
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(name), Event: p, Tenant: "tnt_deployment"})
}

func (h *house) hear(d eventlog.Draft) bus.Heard {
	h.t.Helper()
	seq := h.Say(schemas.Toolbroker, d)
	s, err := h.As(schemas.Toolbroker).ReadAt(h.t.Context(), schemas.Activity, seq)
	if err != nil {
		h.t.Fatal(err)
	}
	ev, err := s.Envelope.Decode()
	if err != nil {
		h.t.Fatal(err)
	}
	return bus.Heard{Delivery: bus.Delivery{Stream: string(s.Stream), Seq: s.Seq, Deliveries: 1}, At: s.At, Envelope: s.Envelope, Event: ev}
}

// story is one call as everybody should write it, to be changed.
type story struct {
	requested call.Requested
	claims    permit.Claims
	admitted  call.Admitted
	tenant    id.Tenant // of the admission's subject
	key       id.Run    // of the admission's subject
	signer    *permit.Signer
	permit    func(string) string
}

// admit tells a call up to its admission.
func (h *house) admit(c id.Call, change func(*story)) bus.Heard {
	h.t.Helper()
	args := json.RawMessage(`{"a":1}`)
	now := time.Now().UTC()
	s := story{tenant: servicekit.Tenant, key: "run_1", signer: permit.NewSigner("key_broker", h.private),
		requested: call.Requested{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", ArgsDigest: permit.Digest(args), Body: call.Args{Args: args}}}
	s.claims = permit.Claims{Audience: call.Upstream, Tenant: servicekit.Tenant, Run: "run_1", Call: c, Tool: "x.y", ArgsDigest: permit.Digest(args), Grant: "grt_1",
		Control: h.granted, IssuedAt: now, ExpiresAt: now.Add(time.Minute)}
	s.admitted = call.Admitted{Call: c, Run: "run_1", Tool: "x.y", Route: call.Upstream, Grant: "grt_1", Control: h.granted}
	s.permit = func(text string) string { return text }
	change(&s)
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: s.requested})
	if s.claims.Requested == 0 {
		s.claims.Requested = seq
	}
	if s.admitted.Requested == 0 {
		s.admitted.Requested = seq
	}
	text, err := s.signer.Sign(s.claims)
	if err != nil {
		h.t.Fatal(err)
	}
	s.admitted.Permit = s.permit(text)
	return h.hear(eventlog.Draft{Key: string(s.key), Event: s.admitted, Tenant: s.tenant, Route: call.Upstream})
}

// answered has a call come with some answers to its server, and be admitted with some.
func answered(s *story, with, admitted string) {
	s.requested.Body.Input = json.RawMessage(with)
	s.requested.ArgsDigest = permit.ArgsDigest(s.requested.Body)
	s.claims.ArgsDigest = permit.ArgsDigest(call.Args{Args: s.requested.Body.Args, Input: json.RawMessage(admitted)})
}

func TestAccept(t *testing.T) {
	h := start(t)
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))
	h.publish("key_stranger", stranger, stranger) // signed by itself, not by the root
	was := time.Now().UTC().Add(-time.Hour)
	for name, c := range map[string]struct {
		change func(*story)
		want   problem.Code // "" with work; "nothing" without
	}{
		"as it should be":            {func(*story) {}, ""},
		"no permit":                  {func(s *story) { s.permit = func(string) string { return "" } }, problem.Denied},
		"a forged permit":            {func(s *story) { s.signer = permit.NewSigner("key_broker", stranger) }, problem.Denied},
		"a key that nobody signed":   {func(s *story) { s.signer = permit.NewSigner("key_stranger", stranger) }, problem.Denied},
		"a permit for the runtime":   {func(s *story) { s.claims.Audience = call.Script }, problem.Denied},
		"a permit of another tenant": {func(s *story) { s.claims.Tenant = "tnt_b" }, problem.Denied},
		"a permit of another run":    {func(s *story) { s.claims.Run = "run_2" }, problem.Denied},
		"a permit of another call":   {func(s *story) { s.claims.Call = "call_other" }, problem.Denied},
		"a permit of another tool":   {func(s *story) { s.claims.Tool = "x.z" }, problem.Denied},
		"a permit of another place":  {func(s *story) { s.claims.Requested = 1 << 30 }, problem.Denied},
		"other arguments admitted":   {func(s *story) { s.claims.ArgsDigest = permit.Digest([]byte(`{"a":2}`)) }, problem.Denied},
		"answers admitted":           {func(s *story) { answered(s, `{"requestState":"a"}`, `{"requestState":"a"}`) }, ""},
		"other answers admitted":     {func(s *story) { answered(s, `{"requestState":"a"}`, `{"requestState":"b"}`) }, problem.Denied},
		"no answers admitted":        {func(s *story) { answered(s, `{"requestState":"a"}`, ``) }, problem.Denied},
		"answers left out":           {func(s *story) { answered(s, ``, `{"requestState":"a"}`) }, problem.Denied},
		"answers that it hides":      {func(s *story) { s.requested.Body.Input = json.RawMessage(`{"requestState":"a"}`) }, problem.Denied},
		"other arguments requested":  {func(s *story) { s.requested.Body.Args = json.RawMessage(`{"a":2}`) }, problem.Denied},
		"another grant":              {func(s *story) { s.admitted.Grant = "grt_2" }, problem.Denied},
		"another control sequence":   {func(s *story) { s.admitted.Control = 1 }, problem.Denied},
		"another tool in the event":  {func(s *story) { s.admitted.Tool = "x.z" }, problem.Denied},
		"edited arguments":           {edited(`{"a":2}`, `{"a":2}`, 9), ""},
		"edited, and changed again":  {edited(`{"a":2}`, `{"a":3}`, 9), problem.Denied},
		"edited without a permit":    {edited(`{"a":1}`, `{"a":2}`, 9), problem.Denied},
		"edited by nobody":           {edited(`{"a":2}`, `{"a":2}`, 0), problem.Denied},
		"edited to nothing":          {edited(`{"a":2}`, ``, 9), problem.Denied},
		"an expired permit":          {func(s *story) { s.claims.IssuedAt, s.claims.ExpiresAt = was, was.Add(time.Minute) }, problem.Expired},
		"a request that is not":      {func(s *story) { s.admitted.Requested = 1 << 40 }, "nothing"},
		"on another run's subject":   {func(s *story) { s.key = "run_2" }, "nothing"},
		"on another tenant's":        {func(s *story) { s.tenant = "tnt_b" }, "nothing"},
	} {
		heard := h.admit(id.Derive[id.Call](name), c.change)
		w, err := h.gate.Accept(t.Context(), heard)
		switch {
		case c.want == "nothing":
			if w != nil && err == nil {
				t.Errorf("%s: work", name)
			}
		case problem.CodeOf(err) != c.want || w == nil:
			t.Errorf("%s: %+v, %v, want %q", name, w, err, c.want)
		case executor.Later(err):
			t.Errorf("%s: it is tried again for ever", name)
		case name == "edited arguments" && (string(w.Requested.Body.Args) != `{"a":2}` || w.Requested.ArgsDigest != w.Permit.ArgsDigest):
			t.Errorf("%s are not those that are acted on: %+v", name, w.Requested)
		}
	}
}

// edited is an admission of edited arguments: those of the permit, those in the admission, and the edit that it names.
func edited(permitted, admitted string, seq uint64) func(*story) {
	return func(s *story) {
		s.claims.ArgsDigest = permit.Digest([]byte(permitted))
		s.admitted.Edited = seq
		if admitted != "" {
			s.admitted.Body.Args = json.RawMessage(admitted)
		}
	}
}

// An admission counts once: not when it is said again, and not when the call has its outcome.
func TestReplay(t *testing.T) {
	h := start(t)
	heard := h.admit("call_1", func(*story) {})
	w, err := h.gate.Accept(t.Context(), heard)
	if err != nil || w == nil {
		t.Fatalf("%+v, %v", w, err)
	}
	if again, err := h.gate.Accept(t.Context(), heard); err != nil || again == nil {
		t.Fatalf("heard again before it ended, nobody goes on: %v", err)
	}
	replayed := h.hear(eventlog.Draft{Key: "run_1", Event: heard.Event, Route: call.Upstream})
	if w, err := h.gate.Accept(t.Context(), replayed); w != nil || err != nil {
		t.Errorf("the same admission, said again: %+v, %v", w, err)
	}
	// With the permit of a call that ended, in a request of another.
	if err := h.gate.Settle(t.Context(), w, call.Finished{Call: "call_1", Run: "run_1", Body: call.Result{Result: json.RawMessage("1")}}); err != nil {
		t.Fatal(err)
	}
	if w, err := h.gate.Accept(t.Context(), heard); w != nil || err != nil {
		t.Errorf("a call that ended: %+v, %v", w, err)
	}
	used := heard.Event.(call.Admitted).Permit
	other := h.admit("call_2", func(s *story) { s.permit = func(string) string { return used } })
	if _, err := h.gate.Accept(t.Context(), other); problem.CodeOf(err) != problem.Denied {
		t.Errorf("another call's permit: %v", err)
	}
	if err := h.gate.Settle(t.Context(), w, call.Finished{Call: "call_1", Run: "run_1", Body: call.Result{Result: json.RawMessage("2")}}); err != nil {
		t.Errorf("settled again: %v", err)
	}
	if n := len(h.Events(schemas.Activity, "call.finished")); n != 1 {
		t.Errorf("%d outcomes", n)
	}
	if w, err := h.gate.Accept(t.Context(), bus.Heard{Event: call.Held{}}); w != nil || err != nil {
		t.Errorf("what is no admission: %+v, %v", w, err)
	}
}

func TestRevocation(t *testing.T) {
	h := start(t)
	heard := h.admit("call_1", func(*story) {})
	w, err := h.gate.Accept(t.Context(), heard)
	if err != nil {
		t.Fatal(err)
	}
	work, leave, err := h.gate.Enter(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.gate.Enter(t.Context(), w); problem.CodeOf(err) != problem.Busy {
		t.Errorf("entered twice: %v", err)
	}
	// A revocation of another tenant's grant of the same name, and of another grant, reach nobody here.
	h.Say(schemas.Approvals, eventlog.Draft{Tenant: "tnt_b", Key: "grt_1", Event: grant.Revoked{Grant: "grt_1"}})
	seq := h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_2", Event: grant.Revoked{Grant: "grt_2"}})
	if err := h.view.Wait(t.Context(), seq); err != nil || work.Err() != nil {
		t.Fatalf("%v, %v", err, context.Cause(work))
	}
	seq = h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_1", Event: grant.Revoked{Grant: "grt_1", Agent: "agt_a"}})
	<-work.Done()
	if executor.Stopped(work) != executor.Revoked {
		t.Errorf("the work ended because %v", context.Cause(work))
	}
	leave()
	if err := h.view.Wait(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.gate.Enter(t.Context(), w); problem.CodeOf(err) != problem.Denied {
		t.Errorf("entered after the revocation: %v", err)
	}
	// Granted anew, it works again.
	seq = h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_1", Event: grant.Created{Grant: "grt_1", Agent: "agt_a"}})
	if err := h.view.Wait(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	work, leave, err = h.gate.Enter(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if work.Err() == nil || executor.Stopped(work) != "" {
		t.Errorf("after leaving: %v", context.Cause(work))
	}
}

// A call that was claimed in time is gone on with after its permit's time: only that finds out what it did.
func TestExpiredAfterItsClaim(t *testing.T) {
	h := start(t)
	soon := func(s *story) { s.claims.ExpiresAt = s.claims.IssuedAt.Add(1200 * time.Millisecond) }
	claimed, never := h.admit("call_1", soon), h.admit("call_2", soon)
	w, err := h.gate.Accept(t.Context(), claimed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.gate.Claim(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the permit is over", func() bool {
		_, err := h.gate.Accept(t.Context(), never)
		return problem.CodeOf(err) == problem.Expired
	})
	again, err := h.gate.Accept(t.Context(), claimed)
	if err != nil || again == nil || again.Permit.Call != "call_1" {
		t.Errorf("a call that was claimed: %+v, %v", again, err)
	}
}

// A gate that has not heard the control stream acts on nothing.
func TestNotCurrent(t *testing.T) {
	h := start(t)
	heard := h.admit("call_1", func(*story) {})
	ahead := h.admit("call_2", func(s *story) { s.admitted.Control, s.claims.Control = h.granted+1000, h.granted+1000 })
	if _, err := h.gate.Accept(t.Context(), ahead); !executor.Later(err) {
		t.Errorf("a decision that saw more: %v", err)
	}
	accepted, err := h.gate.Accept(t.Context(), heard)
	if err != nil {
		t.Fatal(err)
	}
	// Nor does it begin what was accepted before, though nothing that it knows of speaks against it.
	d := h.Deps(schemas.Toolbroker)
	behind := executor.New(call.Upstream, d.Conn, d.Log, d.Root)
	behind.Follow(d.View(func(eventlog.Stored) {}))
	for _, e := range h.Events(schemas.Control, "grant.created") {
		if err := behind.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := behind.Enter(t.Context(), accepted); !executor.Later(err) {
		t.Errorf("what was accepted before: %v", err)
	}
	h.Server.Halt()
	buskit.Eventually(t, "the gate closes", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := h.gate.Accept(ctx, heard)
		return h.view.Current() != nil && executor.Later(err)
	})
	if err := h.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the gate opens again", func() bool {
		w, err := h.gate.Accept(t.Context(), heard)
		return err == nil && w != nil
	})
}
