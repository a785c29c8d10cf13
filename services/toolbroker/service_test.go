package toolbroker_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/toolbroker"
)

func TestMain(m *testing.M) {
	if os.Getenv("TOOLBROKER_TEST_PROGRAM") != "" { // this test's own program is an MCP server
		runProgram()
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	token = "ghp_canary_of_the_test"
	run1  = id.Run("run_1")
)

// house is a broker on a real bus with a GitHub that answers as it is told.
type house struct {
	*servicekit.Kit
	t       *testing.T
	github  *httptest.Server
	effects atomic.Int64 // comments that were made
	answer  atomic.Pointer[http.HandlerFunc]
	ask     func(method string, who rpc.Caller, q any) error
	stop    func()
	stdio   string // a file of programs
	gitMax  int
	gitIdle time.Duration
}

func start(t *testing.T) *house {
	t.Helper()
	t.Parallel()
	h := &house{Kit: servicekit.Start(t), t: t, stdio: programs(t), gitMax: 1 << 20, gitIdle: 2 * time.Second}
	h.says(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("GitHub is asked with %q", r.Header.Get("Authorization"))
		}
		if r.Method == http.MethodPost {
			h.effects.Add(1)
			w.WriteHeader(http.StatusCreated)
		}
		fmt.Fprint(w, `{"id":42,"number":7,"body":"b"}`)
	})
	h.github = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.answer.Load())(w, r) }))
	t.Cleanup(h.github.Close)
	gateway := h.Conn(t, string(schemas.Gateway))
	h.ask = func(method string, who rpc.Caller, q any) error {
		_, err := rpc.Ask[json.RawMessage](t.Context(), gateway, schemas.Toolbroker, method, who, q)
		return err
	}
	h.run()
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted, Runtime: agent.Runtime{Enabled: true}}})
	h.grant("grt_comment", "github.add_issue_comment", grant.Never)
	h.grant("grt_read", "github.issue_read", grant.Never)
	u, err := url.Parse(h.github.URL)
	if err != nil {
		t.Fatal(err)
	}
	def := connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: h.github.URL, Private: []string{u.Host}}
	buskit.Eventually(t, "the broker answers", func() bool {
		return h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: token}) == nil
	})
	_, listed := servicekit.Await[connection.Listed](h.Kit, 1, nil)
	if err := h.ask("barrier", servicekit.Owner(), ask.Sequence{Seq: listed.Seq}); err != nil {
		t.Fatal(err)
	}
	return h
}

// run starts a broker, the first or the next.
func (h *house) run() {
	h.t.Helper()
	s, err := toolbroker.New(toolbroker.Config{RootSigningKeyFile: h.RootFile, StdioFile: h.stdio, CallTimeout: 30 * time.Second, PermitLife: time.Minute, RelistEvery: time.Hour, MaxInFlight: 64, BreakerFailures: 5, BreakerRest: 15 * time.Second, GitMaxBytes: h.gitMax, GitIdle: h.gitIdle}, h.Deps(schemas.Toolbroker))
	if err != nil {
		h.t.Fatal(err)
	}
	h.stop = h.Run(s)
}

func (h *house) says(answer http.HandlerFunc) { h.answer.Store(&answer) }

// grant grants the agent a tool on acme/shop, and waits until the broker knows.
func (h *house) grant(name id.Grant, tool string, rule grant.Approval) {
	h.t.Helper()
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: string(name), Event: grant.Created{Grant: name, Agent: "agt_a", Approval: rule, Tainted: true,
		Selector: grant.Selector{Tool: tool, Repos: []string{"acme/shop"}}}}))
}

func (h *house) revoke(name id.Grant) {
	h.t.Helper()
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: string(name), Event: grant.Revoked{Grant: name, Agent: "agt_a"}}))
}

// heard waits until the broker has heard the control stream up to seq.
func (h *house) heard(seq uint64) {
	h.t.Helper()
	buskit.Eventually(h.t, "the broker is current", func() bool { return h.ask("barrier", servicekit.Owner(), ask.Sequence{Seq: seq}) == nil })
}

const (
	commentArgs = `{"owner":"acme","repo":"shop","issue_number":7,"body":"On it <b>&"}`
	readArgs    = `{"method":"get","owner":"acme","repo":"shop","issue_number":7}`
)

// request asks for a call as the agent loop does, with something changed.
func (h *house) request(c id.Call, tool, args string, change func(*call.Requested)) uint64 {
	h.t.Helper()
	raw := json.RawMessage(args)
	if canonical, err := permit.CanonicalArgs(raw); err == nil {
		raw = canonical
	}
	r := call.Requested{Call: c, Run: run1, Agent: "agt_a", Tool: tool, ArgsDigest: permit.Digest(raw), Effect: string(c), NotAfter: time.Now().Add(time.Minute), Body: call.Args{Args: raw}}
	if change != nil {
		change(&r)
	}
	return h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Run: r.Run, Event: r})
}

// requestIn is request in another run.
func (h *house) requestIn(run id.Run, c id.Call, tool, args string) {
	h.t.Helper()
	raw, err := permit.CanonicalArgs(json.RawMessage(args))
	if err != nil {
		h.t.Fatal(err)
	}
	h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run), Run: run, Event: call.Requested{Call: c, Run: run, Agent: "agt_a", Tool: tool, ArgsDigest: permit.Digest(raw),
		Effect: string(c), NotAfter: time.Now().Add(time.Minute), Body: call.Args{Args: raw}}})
}

func of[T schemas.Event](c id.Call) func(T) bool {
	return func(ev T) bool {
		var at struct{ Call id.Call }
		raw, err := json.Marshal(ev)
		return err == nil && json.Unmarshal(raw, &at) == nil && at.Call == c
	}
}

func await[T schemas.Event](h *house, c id.Call) (T, eventlog.Stored) {
	h.t.Helper()
	return servicekit.Await(h.Kit, 1, of[T](c))
}

// kinds lists what was said of a call.
func (h *house) kinds(c id.Call) (out []string) {
	for _, e := range h.Events(schemas.Activity) {
		if ev, err := e.Envelope.Decode(); err == nil && of[schemas.Event](c)(ev) {
			out = append(out, e.At.Kind())
		}
	}
	return out
}

func TestOneCall(t *testing.T) {
	h := start(t)
	inbox, err := h.Conn(t, string(schemas.Agentloop)).NC.SubscribeSync("ew.hint.v1.agentloop.test.call_1")
	if err != nil {
		t.Fatal(err)
	}
	seq := h.request("call_1", "github.add_issue_comment", commentArgs, func(r *call.Requested) { r.Hint = "ew.hint.v1.agentloop.test.call_1" })
	done, at := await[call.Finished](h, "call_1")
	if done.ToolError || len(done.Taint) != 1 || done.Taint[0] != "con_github" || !strings.Contains(string(done.Body.Result), `"id":42`) || h.effects.Load() != 1 {
		t.Errorf("%+v, %d effects", done, h.effects.Load())
	}
	admitted, admission := await[call.Admitted](h, "call_1")
	if admitted.Route != call.Upstream || admitted.Grant != "grt_comment" || admitted.Requested != seq || at.Envelope.Causation != admission.Envelope.ID {
		t.Errorf("%+v, caused %s", admitted, at.Envelope.Causation)
	}
	m, err := inbox.NextMsg(5 * time.Second)
	if err != nil || !strings.Contains(string(m.Data), fmt.Sprint(at.Seq)) {
		t.Errorf("the hint is %v, %v", m, err)
	}
	// Nobody is told the credential.
	for _, stream := range []schemas.Stream{schemas.Activity, schemas.Control} {
		for _, e := range h.Events(stream) {
			if strings.Contains(string(e.Raw), token) {
				t.Errorf("%s tells the credential", e.At)
			}
		}
	}
}

func testRefused(t *testing.T) {
	h := start(t)
	n := 0
	for name, c := range map[string]struct {
		tool, args string
		change     func(*call.Requested)
		code       problem.Code
	}{
		"past its time":           {"github.issue_read", readArgs, func(r *call.Requested) { r.NotAfter = time.Now().Add(-time.Second) }, problem.Expired},
		"another digest":          {"github.issue_read", readArgs, func(r *call.Requested) { r.ArgsDigest = permit.Digest([]byte("{}")) }, problem.Invalid},
		"no digest":               {"github.issue_read", readArgs, func(r *call.Requested) { r.ArgsDigest = "" }, problem.Invalid},
		"arguments named twice":   {"github.issue_read", `{"owner":"acme","owner":"evil","repo":"shop","method":"get","issue_number":7}`, nil, problem.Invalid},
		"arguments that are text": {"github.issue_read", `"x"`, nil, problem.Invalid},
		"no grant for the tool":   {"runtime.run_javascript", `{"source":"1"}`, nil, problem.Denied},
		"no such tool":            {"github.delete_repository", readArgs, nil, problem.NotFound},
		"no such connection":      {"gitlab.issue_read", readArgs, nil, problem.NotFound},
		"another repository":      {"github.issue_read", `{"method":"get","owner":"acme","repo":"other","issue_number":7}`, nil, problem.Denied},
		"a climbing repository":   {"github.issue_read", `{"method":"get","owner":"acme","repo":"shop/../other","issue_number":7}`, nil, problem.Denied},
		"owner spelt twice":       {"github.issue_read", `{"method":"get","owner":"evil","Owner":"acme","repo":"shop","issue_number":7}`, nil, problem.Denied},
		"an agent that is none":   {"github.issue_read", readArgs, func(r *call.Requested) { r.Agent = "agt_none" }, problem.Denied},
	} {
		n++
		c2 := id.Call(fmt.Sprint("call_", n))
		h.request(c2, c.tool, c.args, c.change)
		got, _ := await[call.Refused](h, c2)
		if got.Code != string(c.code) || got.Reason == "" {
			t.Errorf("%s: %+v, want %s", name, got, c.code)
		}
	}
	if asked := len(h.Events(schemas.Activity, "call.admitted")); asked != 0 {
		t.Errorf("%d were admitted", asked)
	}
}

// A request that is heard twice, or said twice, is decided once and made once.
func TestDuplicates(t *testing.T) {
	h := start(t)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	h.request("call_1", "github.add_issue_comment", commentArgs, nil) // another event of the same call
	h.request("call_1", "github.add_issue_comment", strings.Replace(commentArgs, "On it", "Off it", 1), nil)
	await[call.Finished](h, "call_1")
	_, admission := await[call.Admitted](h, "call_1")
	ev, err := admission.Envelope.Decode()
	if err != nil {
		t.Fatal(err)
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: call.Upstream, Event: ev}) // the admission, said again
	h.request("call_2", "github.issue_read", readArgs, nil)                                       // in the same lane, behind it
	await[call.Finished](h, "call_2")
	if h.effects.Load() != 1 {
		t.Errorf("%d effects", h.effects.Load())
	}
	got := h.kinds("call_1")
	slices.Sort(got)
	if text := fmt.Sprint(got); text != "[call.admitted call.admitted call.finished call.requested call.requested call.requested]" {
		t.Error(text)
	}
}

// What makes no sense is put aside with an answer for whoever waits, and holds up nobody.
func TestUndecodable(t *testing.T) {
	h := start(t)
	subject := "ew.v1.tnt_a.call.run_1.requested"
	envelope := func(data string) string {
		return `{"specversion":"1.0","id":"evt_1","type":"ew.call.requested.v1","tenant":"tnt_a","time":"2026-11-30T12:00:00Z","data":` + data + `}`
	}
	bad := []string{"", "x", "{}", envelope("null"), envelope("{}"), envelope(`{"call":"call_1","run":"run_1","body":7,"tool":"a.b"}`), envelope(`{"call":"call_2","run":"run_other"}`),
		envelope(`{"call":"../x","run":"run_1"}`), envelope(`{"call":"call_3","run":"run_1","not_after":"never"}`)}
	for _, raw := range bad {
		if _, err := h.Boot.JS.Publish(t.Context(), subject, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	h.request("call_9", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_9")
	for _, c := range []id.Call{"call_1", "call_2", "call_3"} {
		if got, _ := await[call.Failed](h, c); got.Code != string(problem.Invalid) || got.Run != run1 {
			t.Errorf("%+v", got)
		}
	}
	dlq, err := h.Boot.JS.Stream(t.Context(), "EW_DLQ")
	if err != nil || dlq.CachedInfo().State.Msgs != uint64(len(bad)) {
		t.Errorf("%d are put aside, want %d, %v", dlq.CachedInfo().State.Msgs, len(bad), err)
	}
}

func (h *house) decide(held call.Held, digest string, approved bool) {
	h.t.Helper()
	a := id.Derive[id.Approval](string(held.Call), digest)
	h.Say(schemas.Approvals, eventlog.Draft{Key: string(a), Event: approval.Decided{Approval: a, Call: held.Call, Run: held.Run, Digest: digest, Approved: approved, By: "mem_x", Requested: held.Requested}})
}

func TestHeld(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	held := map[id.Call]call.Held{}
	for _, c := range []id.Call{"call_yes", "call_no", "call_other", "call_late", "call_withdrawn", "call_changed"} {
		h.request(c, "github.add_issue_comment", commentArgs, nil)
		held[c], _ = await[call.Held](h, c)
	}
	if d := held["call_yes"].Digest; d == "" || d != held["call_no"].Digest {
		t.Errorf("digests %q and %q of the same arguments under the same grant", d, held["call_no"].Digest)
	}
	h.decide(held["call_yes"], held["call_yes"].Digest, true)
	h.decide(held["call_no"], held["call_no"].Digest, false)
	h.decide(held["call_other"], permit.Digest([]byte("something else")), true)
	h.Say(schemas.Approvals, eventlog.Draft{Key: "apr_late", Event: approval.Expired{Approval: "apr_late", Call: "call_late", Run: run1, Digest: held["call_late"].Digest, Requested: held["call_late"].Requested}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "apr_gone", Event: approval.Expired{Approval: "apr_gone", Call: "call_withdrawn", Run: run1, Digest: held["call_withdrawn"].Digest, Requested: held["call_withdrawn"].Requested, Reason: approval.Withdrawn}})
	await[call.Finished](h, "call_yes")
	for c, code := range map[id.Call]problem.Code{"call_no": problem.Denied, "call_other": problem.Conflict, "call_late": problem.Expired, "call_withdrawn": problem.Cancelled} {
		if got, _ := await[call.Refused](h, c); got.Code != string(code) {
			t.Errorf("%s: %+v, want %s", c, got, code)
		}
	}
	// The grant that a member looked at is not this one any more.
	h.grant("grt_comment", "github.*", grant.Always)
	h.decide(held["call_changed"], held["call_changed"].Digest, true)
	if got, _ := await[call.Refused](h, "call_changed"); got.Code != string(problem.Conflict) {
		t.Errorf("%+v", got)
	}
	// A decision is used once, and a second one for the same call changes nothing.
	h.decide(held["call_yes"], held["call_yes"].Digest, false)
	h.request("call_read", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_read")
	if h.effects.Load() != 1 {
		t.Errorf("%d effects", h.effects.Load())
	}
}

// What ended without an answer is told by whether it may have had its effect.
func TestNoAnswer(t *testing.T) {
	h := start(t)
	h.says(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h.request("call_1", "github.add_issue_comment", commentArgs, nil)
	if got, _ := await[call.Unknown](h, "call_1"); got.Message == "" {
		t.Errorf("%+v", got)
	}
	h.request("call_2", "github.issue_read", readArgs, nil)
	if got, _ := await[call.Failed](h, "call_2"); got.Code != string(problem.Upstream) {
		t.Errorf("%+v", got)
	}
	h.github.Config.SetKeepAlivesEnabled(false)
	h.github.Close() // nobody takes the connection
	h.request("call_3", "github.add_issue_comment", commentArgs, nil)
	if got, _ := await[call.Failed](h, "call_3"); got.Code != string(problem.Upstream) {
		t.Errorf("%+v", got)
	}
}

// A provider may say more than is kept, which is told, and more than an event holds, which goes beside it.
func TestLargeResult(t *testing.T) {
	h := start(t)
	size := atomic.Int64{}
	big := mcp.NewServer(&mcp.Implementation{Name: "big", Version: "1"}, nil)
	big.AddTool(&mcp.Tool{Name: "say", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", int(size.Load()))}}}, nil
	})
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return big }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { h.stop(); server.Close() }) // which waits for the broker's ear to go away
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	def := connection.Defined{Connection: "con_big", Type: connection.MCP, URL: server.URL, Private: []string{u.Host}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(l connection.Listed) bool { return l.Connection == def.Connection })
	h.heard(listed.Seq)
	h.grant("grt_big", "big.say", grant.Never)
	size.Store(1 << 20)
	h.request("call_1", "big.say", `{}`, nil)
	if got, _ := await[call.Finished](h, "call_1"); !got.ToolError || !strings.Contains(string(got.Body.Result), "over 1 MiB") {
		t.Errorf("%.200s", got.Body.Result)
	}
	size.Store(900 << 10)
	h.request("call_2", "big.say", `{}`, nil)
	if got, at := await[call.Finished](h, "call_2"); got.ToolError || len(got.Body.Result) < 900<<10 || at.Envelope.BodyBlob == "" {
		t.Errorf("%d bytes, blob %q", len(got.Body.Result), at.Envelope.BodyBlob)
	}
}

// A revocation ends what is in flight, and nothing starts after it.
func testRevoked(t *testing.T) {
	h := start(t)
	arrived := make(chan string, 4)
	h.says(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees its client go only after the body
		arrived <- r.Method
		<-r.Context().Done()
	})
	h.request("call_read", "github.issue_read", readArgs, nil)
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_2", Event: call.Requested{Call: "call_write", Run: "run_2", Agent: "agt_a", Tool: "github.add_issue_comment",
		ArgsDigest: digestOf(t, commentArgs), Effect: "call_write", NotAfter: time.Now().Add(time.Minute), Body: call.Args{Args: json.RawMessage(commentArgs)}}})
	<-arrived
	<-arrived
	h.revoke("grt_read")
	if got, _ := await[call.Cancelled](h, "call_read"); got.Reason == "" {
		t.Errorf("%+v", got)
	}
	h.revoke("grt_comment")
	await[call.Unknown](h, "call_write") // it was sent: nobody knows
	h.request("call_after", "github.issue_read", readArgs, nil)
	if got, _ := await[call.Refused](h, "call_after"); got.Code != string(problem.Denied) {
		t.Errorf("%+v", got)
	}
	if len(arrived) != 0 {
		t.Error("GitHub was asked after the revocation")
	}
}

// Cancelling a run ends its calls in flight, and no other run's.
func TestRunCancelled(t *testing.T) {
	h := start(t)
	arrived, answer := make(chan struct{}, 4), make(chan struct{})
	h.says(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees its client go only after the body
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-answer:
			_, _ = w.Write([]byte(`{"number": 1}`))
		}
	})
	h.request("call_read", "github.issue_read", readArgs, nil)
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_2", Event: call.Requested{Call: "call_other", Run: "run_2", Agent: "agt_a", Tool: "github.issue_read",
		ArgsDigest: digestOf(t, readArgs), Effect: "call_other", NotAfter: time.Now().Add(time.Minute), Body: call.Args{Args: json.RawMessage(readArgs)}}})
	<-arrived
	<-arrived
	h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Event: run.Cancelled{Run: run1, Reason: "r"}})
	if got, _ := await[call.Cancelled](h, "call_read"); got.Reason != "the run was cancelled" {
		t.Errorf("%+v", got)
	}
	close(answer)
	await[call.Finished](h, "call_other")
}

func digestOf(t *testing.T, args string) string {
	t.Helper()
	canonical, err := permit.CanonicalArgs(json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return permit.Digest(canonical)
}

// leave leaves what a broker that died in the middle of a call leaves: an admission, a claim whose time is over, and no
// outcome.
func (h *house) leave(c id.Call, g id.Grant, tool, args string) {
	h.t.Helper()
	t := h.t
	conn := h.Conn(t, string(schemas.Toolbroker))
	secrets, err := vault.Open(t.Context(), conn, h.Master)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := secrets.Get(t.Context(), "tnt_deployment", "permit-key")
	if err != nil {
		t.Fatal(err)
	}
	private, err := keyfile.Parse(sealed.Reveal(), "the permit key")
	if err != nil {
		t.Fatal(err)
	}
	signer := permit.NewSigner(id.Derive[id.Key](string(private.Public().(ed25519.PublicKey))), private)
	seq, now := h.request(c, tool, args, nil), time.Now().UTC()
	text, err := signer.Sign(permit.Claims{Audience: call.Upstream, Tenant: servicekit.Tenant, Run: run1, Call: c, Tool: tool, Grant: g,
		ArgsDigest: digestOf(t, args), Requested: seq, Control: 1, IssuedAt: now, ExpiresAt: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Route: call.Upstream, Event: call.Admitted{Call: c, Run: run1, Tool: tool,
		Route: call.Upstream, Grant: g, Requested: seq, Control: 1, Permit: text}})
	claims, err := conn.JS.KeyValue(t.Context(), "claims")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Create(t.Context(), "tnt_a."+string(c), []byte(`{"owner":"dead","epoch":1,"deadline":"2026-01-01T00:00:00Z"}`)); err != nil {
		t.Fatal(err)
	}
}

// A broker that died after the effect, and a grant that was revoked before the next one looked: nobody may say that
// the call had no effect.
func TestRevokedAfterACrash(t *testing.T) {
	h := start(t)
	h.stop()
	h.leave("call_1", "grt_comment", "github.add_issue_comment", commentArgs)
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_comment", Event: grant.Revoked{Grant: "grt_comment", Agent: "agt_a"}})
	h.run()
	await[call.Unknown](h, "call_1")
	if got := h.kinds("call_1"); !slices.Contains(got, "call.unknown") || slices.Contains(got, "call.cancelled") || h.effects.Load() != 0 {
		t.Errorf("%v", got)
	}
}

// Likewise when what the next broker does comes to nothing: the provider is gone, or no longer has the tool.
func TestRepeatedInVainAfterACrash(t *testing.T) {
	h := start(t)
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "pay", Annotations: &mcp.ToolAnnotations{IdempotentHint: true}}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	die := h.connectMCP("bank", server)
	h.request("call_1", "bank.pay", `{}`, nil)
	await[call.Finished](h, "call_1")
	h.stop()
	die()
	h.leave("call_gone", "grt_bank", "bank.pay", `{}`)
	h.leave("call_none", "grt_bank", "bank.withdrawn", `{}`)
	h.run()
	for _, c := range []id.Call{"call_gone", "call_none"} {
		await[call.Unknown](h, c)
		if got := h.kinds(c); slices.Contains(got, "call.failed") {
			t.Errorf("%s: %v", c, got)
		}
	}
}

func TestDefineConnection(t *testing.T) {
	h := start(t)
	good := connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: "https://tickets.example.com/mcp"}
	for _, role := range []member.Role{member.Approver, member.Auditor, "", "root"} {
		if err := h.ask("connection_define", servicekit.Caller("mem_x", role), ask.DefineConnection{Connection: good}); problem.CodeOf(err) != problem.Denied {
			t.Errorf("role %q: %v", role, err)
		}
	}
	for name, change := range map[string]func(*connection.Defined){
		"a built-in name": func(d *connection.Defined) { d.Connection = "con_runtime" },
		"another's id":    func(d *connection.Defined) { d.Connection = "agt_x" },
		"no id":           func(d *connection.Defined) { d.Connection = "" },
		"an unknown type": func(d *connection.Defined) { d.Type = "ftp" },
		"no URL":          func(d *connection.Defined) { d.URL = "" },
		"a file":          func(d *connection.Defined) { d.URL = "file:///etc/passwd" },
		"a password":      func(d *connection.Defined) { d.URL = "https://user:pass@x.example" },
		"a private range": func(d *connection.Defined) { d.Private = []string{"10.0.0.0/8"} },
		"a private name":  func(d *connection.Defined) { d.Private = []string{"localhost:80"} },
	} {
		d := good
		change(&d)
		if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: d}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A credential goes to the address that it was given for, whoever changes the connection, and whatever crashes meanwhile.
func TestCredentialStaysWithItsAddress(t *testing.T) {
	h := start(t)
	u, err := url.Parse(h.github.URL)
	if err != nil {
		t.Fatal(err)
	}
	var elsewhere atomic.Int64
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer other" {
			elsewhere.Add(1)
		}
		fmt.Fprint(w, `{"number":7}`)
	}))
	t.Cleanup(evil.Close)
	v, err := url.Parse(evil.URL)
	if err != nil {
		t.Fatal(err)
	}
	def := connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: evil.URL, Private: []string{u.Host, v.Host}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("the credential is taken elsewhere: %v", err)
	}
	def.URL = h.github.URL + "/api/v3" // of the same server
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Error(err)
	}
	// A crash between sealing a credential for a new address and saying so: the old definition does not send it.
	sealed, err := vault.Open(t.Context(), h.Conn(t, string(schemas.Toolbroker)), h.Master)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sealed.Put(t.Context(), servicekit.Tenant, "con_github", vault.NewSecret("other")); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	h.says(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	h.request("call_1", "github.issue_read", readArgs, nil)
	if await[call.Failed](h, "call_1"); asked.Load() != 0 {
		t.Errorf("GitHub was asked %d times", asked.Load())
	}
	def.URL = evil.URL
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: "other"}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the connection works at its new address", func() bool {
		c := id.New[id.Call]()
		h.request(c, "github.issue_read", readArgs, nil)
		var ok bool
		buskit.Eventually(t, "an outcome", func() bool {
			kinds := h.kinds(c)
			ok = slices.Contains(kinds, "call.finished")
			return ok || slices.Contains(kinds, "call.failed")
		})
		return ok
	})
	if elsewhere.Load() != 0 {
		t.Error("the old credential went to the new address")
	}
}

// A provider that takes its time to say goodbye does so at nobody else's cost.
func TestSlowGoodbye(t *testing.T) {
	h := start(t)
	var goodbyes atomic.Int64
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			goodbyes.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, m.ID, m.Params.ProtocolVersion)
		case m.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}`, m.ID)
		case len(m.ID) > 0:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer slow.Close()
	host := strings.TrimPrefix(slow.URL, "http://")
	def := connection.Defined{Connection: "con_slow", Type: connection.MCP, URL: slow.URL, Private: []string{host}}
	define := func() {
		if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
			t.Fatal(err)
		}
	}
	define()
	servicekit.Await(h.Kit, 1, func(l connection.Listed) bool { return l.Connection == "con_slow" })
	def.Trusted = true
	define()
	buskit.Eventually(t, "the old session is ended", func() bool { return goodbyes.Load() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	h.request("call_1", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_1")
	if ctx.Err() != nil {
		t.Error("a call to GitHub waited for somebody else's MCP server")
	}
	close(release)
}
