package webhooks_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/hook"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/services/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret  = "a secret of the test, long enough"
	guid    = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	maxBody = 25 << 20
	opened  = `{"action":"opened","repository":{"full_name":"acme/shop"},"sender":{"login":"ann","type":"User"},"issue":{"number":7,"title":"It breaks","user":{"login":"bob"}}}`
)

// door is a webhooks service on a real bus.
type door struct {
	*servicekit.Kit
	t      *testing.T
	base   string
	addr   string
	client *http.Client
	ask    func(method string, caller rpc.Caller, q any) error // as the gateway
}

// start runs the service with triggers that it knows from before, so that no delivery comes in front of them.
func start(t *testing.T, concurrent int, known ...trigger.Defined) *door {
	t.Helper()
	t.Parallel()
	k := servicekit.Start(t)
	for _, def := range known {
		k.Say(schemas.Webhooks, eventlog.Draft{Key: string(def.Trigger), Event: def})
	}
	s, err := webhooks.New(webhooks.Config{Listen: "127.0.0.1:0", Concurrent: concurrent}, k.Deps(schemas.Webhooks))
	if err != nil {
		t.Fatal(err)
	}
	k.Run(s)
	addr, err := s.Addr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	d := &door{Kit: k, t: t, addr: addr.String(), base: "http://" + addr.String() + "/hooks/tnt_a/", client: &http.Client{Transport: transport}}
	gateway := k.Conn(t, string(schemas.Gateway))
	d.ask = func(method string, caller rpc.Caller, q any) error {
		_, err := rpc.Ask[json.RawMessage](t.Context(), gateway, schemas.Webhooks, method, caller, q)
		return err
	}
	d.hook("hook_github")
	return d
}

func (d *door) hook(name id.Hook) {
	d.t.Helper()
	buskit.Eventually(d.t, "the endpoint is defined", func() bool {
		return d.ask("hook_define", servicekit.Owner(), ask.DefineHook{Hook: name, Secret: secret}) == nil
	})
}

// triggers is what the sample has, changed.
func triggers(changes ...func(*trigger.Defined)) (out []trigger.Defined) {
	for _, change := range changes {
		def := trigger.Defined{Trigger: "trg_triage", Hook: "hook_github", Events: []string{"issues.opened"}, Repos: []string{"Acme/Shop"}, Agent: "agt_triage", Prompt: "Triage {{.Repo}}#{{.Number}}: {{.Title}}"}
		change(&def)
		out = append(out, def)
	}
	return out
}

func asItIs(*trigger.Defined) {}

func signed(newHash func() hash.Hash, key, body string) string {
	mac := hmac.New(newHash, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func sha256Of(body string) string { return "sha256=" + signed(sha256.New, secret, body) }

// delivery is a valid request, to be changed.
func (d *door) delivery(hookName, body string) *http.Request {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.base+hookName, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("X-GitHub-Event", "issues")
	req.Header.Set("X-GitHub-Delivery", guid)
	req.Header.Set("X-Hub-Signature-256", sha256Of(body))
	return req
}

func (d *door) send(req *http.Request) (status int, document string) {
	d.t.Helper()
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// recorded counts what is on the stream of what happens, decodable or not.
func (d *door) recorded() uint64 {
	d.t.Helper()
	s, err := d.Boot.JS.Stream(d.t.Context(), string(schemas.Activity))
	if err != nil {
		d.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// Nothing that is not signed, whole and well formed leaves a trace on the bus.
func TestHostileDeliveries(t *testing.T) {
	d := start(t, 4)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del(name)
			if value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	signature := func(value string) func(*http.Request) { return header("X-Hub-Signature-256", value) }
	path := func(p string) func(*http.Request) {
		return func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/hooks/"+p, "" }
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"no signature":                {signature(""), 401},
		"wrong signature":             {signature("sha256=" + strings.Repeat("0", 64)), 401},
		"signature of another secret": {signature("sha256=" + signed(sha256.New, secret+"x", opened)), 401},
		"signature of no secret":      {signature("sha256=" + signed(sha256.New, "", opened)), 401},
		"signature of another body":   {signature(sha256Of(opened + " ")), 401},
		"SHA-1 alone": {func(r *http.Request) {
			signature("")(r)
			header("X-Hub-Signature", "sha1="+signed(sha1.New, secret, opened))(r)
		}, 401},
		"SHA-1 in SHA-256's header": {signature("sha1=" + signed(sha1.New, secret, opened)), 401},
		"SHA-1 named SHA-256":       {signature("sha256=" + signed(sha1.New, secret, opened)), 401},
		"no algorithm":              {signature(signed(sha256.New, secret, opened)), 401},
		"algorithm in capitals":     {signature("SHA256=" + signed(sha256.New, secret, opened)), 401},
		"half a signature":          {signature(sha256Of(opened)[:39]), 401},
		"signature and more":        {signature(sha256Of(opened) + "00"), 401},
		"no hex":                    {signature("sha256=" + strings.Repeat("z", 64)), 401},
		"nothing after sha256=":     {signature("sha256="), 401},
		"two signatures":            {signature(sha256Of(opened) + ", " + sha256Of(opened)), 401},
		"no event":                  {header("X-GitHub-Event", ""), 400},
		"no delivery":               {header("X-GitHub-Delivery", ""), 400},
		"event in capitals":         {header("X-GitHub-Event", "Issues"), 400},
		"event with a dot":          {header("X-GitHub-Event", "issues.opened"), 400},
		"event of 65":               {header("X-GitHub-Event", strings.Repeat("a", 65)), 400},
		"delivery of a path":        {header("X-GitHub-Delivery", "../../etc/passwd"), 400},
		"delivery of a subject":     {header("X-GitHub-Delivery", "aaaaaaaa.>"), 400},
		"short delivery":            {header("X-GitHub-Delivery", "1234567"), 400},
		"long delivery":             {header("X-GitHub-Delivery", strings.Repeat("1", 65)), 400},
		"GET":                       {func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"PUT":                       {func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"unknown hook":              {path("tnt_a/hook_other"), 404},
		"another tenant's hook":     {path("tnt_b/hook_github"), 404},
		"a tenant that is none":     {path("*/hook_github"), 404},
		"a hook that is none":       {path("tnt_a/trg_triage"), 404},
		"a hook in a folder":        {path("tnt_a/hook_github/x"), 404},
		"no hook":                   {path("tnt_a"), 404},
		"a tenant with a dot":       {path("tnt_a.x/hook_github"), 404},
	} {
		req := d.delivery("hook_github", opened)
		c.change(req)
		if got, document := d.send(req); got != c.want {
			t.Errorf("%s: %d %s, want %d", name, got, document, c.want)
		} else if strings.Contains(document, secret) {
			t.Errorf("%s: the answer tells the secret", name)
		}
	}
	if n := d.recorded(); n != 0 {
		t.Fatalf("%d events are on the bus", n)
	}
	if got, document := d.send(d.delivery("hook_github", opened)); got != 202 {
		t.Fatalf("the delivery that all of these come from is answered %d %s", got, document)
	}
	servicekit.Await[hook.Received](d.Kit, 1, nil)
}

// A size that is told is refused before a byte of it is read; one that is not told, once it is too much.
func TestTooLarge(t *testing.T) {
	d := start(t, 4)
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /hooks/tnt_a/hook_github HTTP/1.1\r\nHost: x\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: %s\r\nX-Hub-Signature-256: %s\r\nContent-Length: %d\r\n\r\n", guid, sha256Of(""), maxBody+1)
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer before the body: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("a length over the limit is answered %s", resp.Status)
	}

	body := strings.Repeat("x", maxBody+1)
	req := d.delivery("hook_github", body)
	req.ContentLength, req.Body = -1, io.NopCloser(strings.NewReader(body)) // chunked
	resp, err = d.client.Do(req)
	if err == nil { // else the server closed the connection while we still sent: as good a refusal
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("chunks over the limit are answered %s", resp.Status)
		}
	}
	if n := d.recorded(); n != 0 {
		t.Errorf("%d events are on the bus", n)
	}
}

func TestLargePayloadIsKeptWhole(t *testing.T) {
	d := start(t, 4)
	body := `{"action":"opened","padding":"` + strings.Repeat("p", large) + `"}`
	if got, document := d.send(d.delivery("hook_github", body)); got != 202 {
		t.Fatalf("%d %s", got, document)
	}
	buskit.Eventually(t, "the delivery is looked at", func() bool { return d.recorded() == 2 }) // reading it back is slow
	got, at := servicekit.Await[hook.Received](d.Kit, 1, nil)
	if string(got.Body.Payload) != body {
		t.Errorf("%d bytes are read back, sent %d", len(got.Body.Payload), len(body))
	}
	if len(at.Raw) > schemas.MaxEnvelope || at.Envelope.BodyBlob == "" {
		t.Errorf("the event is %d bytes with blob %q", len(at.Raw), at.Envelope.BodyBlob)
	}
}

// A payload whose chunks in the blob store are not the ones that were sent is put aside, not tried for ever.
func TestDamagedPayloadIsPutAside(t *testing.T) {
	d := start(t, 4)
	payload := `{"action":"opened","padding":"` + strings.Repeat("d", 256<<10) + `"}`
	body, err := json.Marshal(hook.Payload{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	for _, day := range []time.Time{now, now.AddDate(0, 0, 1)} { // the first to write a chunk is the only one
		chunk := &nats.Msg{Subject: fmt.Sprintf("ew.blob.v1.%s.%s.%x.0", servicekit.Tenant, day.Format("20060102"), sha256.Sum256(body)),
			Data: []byte("other bytes"), Header: nats.Header{"Ew-Chunks": {"1"}}}
		if _, err := d.Boot.JS.PublishMsg(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got, document := d.send(d.delivery("hook_github", payload)); got != 202 {
		t.Fatalf("%d %s", got, document)
	}
	dlq, err := d.Boot.JS.Stream(t.Context(), "EW_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the delivery is put aside", func() bool {
		info, err := dlq.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	})
}

// runs plays the agent loop.
type runs struct {
	mu     sync.Mutex
	asked  []ask.StartRun
	answer func(ask.StartRun) error
}

func (r *runs) start(_ context.Context, who rpc.Caller, q ask.StartRun) (ask.Started, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q)
	if who.Tenant != servicekit.Tenant || who.Service != schemas.Webhooks {
		return ask.Started{}, problem.New(problem.Denied, "asked by %+v", who)
	}
	if r.answer != nil {
		if err := r.answer(q); err != nil {
			return ask.Started{}, err
		}
	}
	return ask.Started{Run: q.Run, Seq: 1}, nil
}

func (r *runs) all() []ask.StartRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]ask.StartRun(nil), r.asked...)
}

// GitHub delivers at least once, and its senders are not slow.
func TestOneDeliveryOneRun(t *testing.T) {
	d := start(t, 16, triggers(asItIs)...)
	var r runs
	servicekit.Answer(d.Kit, schemas.Agentloop, "run_start", r.start)
	var wait sync.WaitGroup
	var refused atomic.Int64
	for range 8 {
		wait.Go(func() {
			if got, _ := d.send(d.delivery("hook_github", opened)); got != 202 {
				refused.Add(1)
			}
		})
	}
	wait.Wait()
	if got, _ := d.send(d.delivery("hook_github", opened)); got != 202 || refused.Load() > 0 {
		t.Errorf("a delivery that came before is answered %d, %d at once were refused", got, refused.Load())
	}
	routed, at := servicekit.Await[hook.Routed](d.Kit, 1, nil)
	if n := len(d.Events(schemas.Activity, "hook.received")); n != 1 {
		t.Errorf("%d deliveries are recorded", n)
	}
	asked := r.all()
	if len(asked) == 0 || len(routed.Runs) != 1 || asked[0].Run != routed.Runs[0] {
		t.Fatalf("asked %+v, routed %+v", asked, routed)
	}
	q := asked[0]
	if q.Prompt != "Triage acme/shop#7: It breaks" || q.Agent != "agt_triage" || q.Trigger != "trg_triage" || len(q.Taint) != 1 || q.Taint[0] != "hook_github" {
		t.Errorf("%+v", q)
	}
	received := d.Events(schemas.Activity, "hook.received")[0]
	if at.Envelope.Causation != received.Envelope.ID {
		t.Errorf("hook.routed is caused by %s", at.Envelope.Causation)
	}

	// The same GUID over another endpoint is another delivery: GitHub gives two apps the same one.
	d.hook("hook_second")
	if got, _ := d.send(d.delivery("hook_second", opened)); got != 202 {
		t.Errorf("the second endpoint answers %d", got)
	}
	servicekit.Await[hook.Received](d.Kit, 2, nil)
	servicekit.Await[hook.Ignored](d.Kit, 1, func(i hook.Ignored) bool { return i.Reason == "the endpoint has no triggers" })
}

func TestIgnored(t *testing.T) {
	d := start(t, 16, triggers(asItIs,
		func(f *trigger.Defined) {
			f.Trigger, f.Events, f.Agent = "trg_gone", []string{"issues.closed"}, "agt_gone"
		},
		func(f *trigger.Defined) {
			f.Trigger, f.Events, f.Prompt = "trg_slices", []string{"issues.labeled"}, "{{if .Title}}{{slice .Title 1 100}}{{end}}"
		})...)
	r := runs{answer: func(q ask.StartRun) error {
		if q.Agent == "agt_gone" {
			return problem.New(problem.NotFound, "there is no agent gone")
		}
		return nil
	}}
	servicekit.Answer(d.Kit, schemas.Agentloop, "run_start", r.start)
	replace := func(old, by string) string { return strings.Replace(opened, old, by, 1) }
	n := 0
	for name, c := range map[string]struct{ body, reason string }{
		"no JSON":          {"payload=%7B%7D", "not JSON"},
		"an empty body":    {"", "not JSON"},
		"another shape":    {`{"issue":[]}`, "not JSON"},
		"a bot":            {replace(`"User"`, `"Bot"`), "bot"},
		"no sender":        {replace(`"sender"`, `"nobody"`), "bot"},
		"another repo":     {replace("acme/shop", "evil/shop"), "evil/shop"},
		"another action":   {replace("opened", "edited"), "issues.edited"},
		"an agent gone":    {replace("opened", "closed"), "there is no agent gone"},
		"a failing prompt": {replace("opened", "labeled"), "prompt"},
	} {
		n++
		req := d.delivery("hook_github", c.body)
		one := fmt.Sprintf("%08d-cc78-11e3-81ab-4c9367dc0958", n)
		req.Header.Set("X-GitHub-Delivery", one)
		if got, document := d.send(req); got != 202 {
			t.Fatalf("%s: %d %s", name, got, document)
		}
		delivery := id.Derive[id.Delivery]("tnt_a", "hook_github", one)
		// Of several triggers the last one's reason is told; which is last is chance, so only these can be compared.
		ev, _ := servicekit.Await[hook.Ignored](d.Kit, 1, func(i hook.Ignored) bool { return i.Delivery == delivery })
		if ev.Reason == "" || strings.Contains(c.reason, "JSON") && !strings.Contains(ev.Reason, c.reason) {
			t.Errorf("%s is ignored because %q", name, ev.Reason)
		}
	}
	for _, q := range r.all() {
		if q.Agent != "agt_gone" {
			t.Errorf("a run was started: %+v", q)
		}
	}
}

// Why nothing was started is told by the trigger that came nearest to starting something.
func TestIgnoredReason(t *testing.T) {
	d := start(t, 16, triggers(asItIs)...)
	for body, reason := range map[string]string{
		strings.Replace(opened, `"User"`, `"Bot"`, 1):        "the sender is a bot",
		strings.Replace(opened, "acme/shop", "evil/shop", 1): "no trigger is for repository evil/shop",
		strings.Replace(opened, "opened", "edited", 1):       "no trigger is for issues.edited",
	} {
		req := d.delivery("hook_github", body)
		sum := sha256.Sum256([]byte(body))
		req.Header.Set("X-GitHub-Delivery", hex.EncodeToString(sum[:16]))
		if got, _ := d.send(req); got != 202 {
			t.Fatalf("%d", got)
		}
		servicekit.Await[hook.Ignored](d.Kit, 1, func(i hook.Ignored) bool { return i.Reason == reason })
	}
}

// An agent loop that does not answer is waited for; the delivery is not lost and not ignored.
func TestAgentLoopIsWaitedFor(t *testing.T) {
	d := start(t, 4, triggers(asItIs)...)
	if got, _ := d.send(d.delivery("hook_github", opened)); got != 202 {
		t.Fatalf("%d", got)
	}
	servicekit.Await[hook.Received](d.Kit, 1, nil)
	left := 2
	r := runs{answer: func(ask.StartRun) error {
		if left--; left > 0 {
			return problem.New(problem.Unavailable, "not yet")
		}
		return nil
	}}
	servicekit.Answer(d.Kit, schemas.Agentloop, "run_start", r.start)
	servicekit.Await[hook.Routed](d.Kit, 1, nil)
	if n := len(d.Events(schemas.Activity, "hook.ignored")); n != 0 {
		t.Error("the delivery was ignored as well")
	}
	asked := r.all()
	if asked[0].Run != asked[len(asked)-1].Run {
		t.Errorf("two runs were asked for: %+v", asked)
	}
}

func TestOneTooMany(t *testing.T) {
	d := start(t, 1)
	slow, feed := io.Pipe()
	req := d.delivery("hook_github", opened)
	req.Body, req.ContentLength = slow, int64(len(opened))
	req.Header.Set("Expect", "100-continue") // so that the first byte goes only once the delivery has its place
	answered := make(chan int, 1)
	go func() {
		resp, err := d.client.Do(req)
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	if _, err := io.WriteString(feed, opened[:10]); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "503", func() bool {
		req := d.delivery("hook_github", opened)
		req.Header.Set("X-GitHub-Delivery", "another-delivery")
		req.Header.Del("X-Hub-Signature-256") // while the slot is free this is 401, and leaves nothing behind
		got, _ := d.send(req)
		return got == 503
	})
	if _, err := io.WriteString(feed, opened[10:]); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	if got := <-answered; got != 202 {
		t.Errorf("the one that held the place is answered %d", got)
	}
	buskit.Eventually(t, "the place is free again", func() bool {
		got, _ := d.send(d.delivery("hook_github", opened))
		return got == 202
	})
}

// Without a bus a delivery is refused, so that GitHub shows it as failed.
func TestNoBusNo202(t *testing.T) {
	d := start(t, 4)
	if got, _ := d.send(d.delivery("hook_github", opened)); got != 202 {
		t.Fatalf("%d", got)
	}
	d.Server.Halt()
	req := d.delivery("hook_github", opened)
	req.Header.Set("X-GitHub-Delivery", "22222222-cc78-11e3-81ab-4c9367dc0958")
	if got, document := d.send(req); got != 503 {
		t.Errorf("%d %s", got, document)
	}
	if err := d.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "deliveries are taken again", func() bool {
		got, _ := d.send(d.delivery("hook_github", opened))
		return got == 202
	})
	if n := len(d.Events(schemas.Activity, "hook.received")); n != 1 {
		t.Errorf("%d deliveries are recorded", n)
	}
}

func TestWhoMayConfigure(t *testing.T) {
	d := start(t, 4)
	def := trigger.Defined{Trigger: "trg_x", Hook: "hook_github", Events: []string{"issues.opened"}, Agent: "agt_triage", Prompt: "x"}
	for _, role := range []member.Role{member.Approver, member.Auditor, "", "root"} {
		for method, q := range map[string]any{"trigger_define": ask.DefineTrigger{Trigger: def}, "hook_define": ask.DefineHook{Hook: "hook_x", Secret: secret}} {
			if err := d.ask(method, servicekit.Caller("mem_x", role), q); problem.CodeOf(err) != problem.Denied {
				t.Errorf("role %q and %s: %v", role, method, err)
			}
		}
	}
	bad := func(change func(*trigger.Defined)) ask.DefineTrigger {
		x := def
		change(&x)
		return ask.DefineTrigger{Trigger: x}
	}
	for name, q := range map[string]any{
		"a short secret":     ask.DefineHook{Hook: "hook_x", Secret: "too short"},
		"a hook with a dot":  ask.DefineHook{Hook: "hook_a.b", Secret: secret},
		"a trigger's id":     bad(func(d *trigger.Defined) { d.Trigger = "hook_x" }),
		"a trigger's agent":  bad(func(d *trigger.Defined) { d.Agent = "" }),
		"a trigger's prompt": bad(func(d *trigger.Defined) { d.Prompt = "{{range 1000000000000}}{{end}}" }),
	} {
		method := "trigger_define"
		if _, ok := q.(ask.DefineHook); ok {
			method = "hook_define"
		}
		if err := d.ask(method, servicekit.Owner(), q); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(d.Events(schemas.Control, "trigger.defined")); n != 0 {
		t.Errorf("%d triggers are defined", n)
	}
}

// An event of ours that holds no payload at all is put aside and holds nobody up.
func TestForeignEventsOnTheBus(t *testing.T) {
	d := start(t, 4)
	for _, raw := range []string{"", "{}", "null", "[]"} {
		if _, err := d.Boot.JS.Publish(t.Context(), "ew.v1.tnt_a.hook.dlv_x.received", []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := d.send(d.delivery("hook_github", opened)); got != 202 {
		t.Fatalf("%d", got)
	}
	servicekit.Await[hook.Ignored](d.Kit, 1, nil)
	dlq, err := d.Boot.JS.Stream(t.Context(), "EW_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "four messages are put aside", func() bool {
		info, err := dlq.Info(t.Context())
		return err == nil && info.State.Msgs == 4
	})
}

func TestConfig(t *testing.T) {
	for _, n := range []int{-1, 0, 1025} {
		if _, err := webhooks.New(webhooks.Config{Concurrent: n}, boot.Deps{}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%d at once: %v", n, err)
		}
	}
}
