package toolbroker_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/gitkit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
)

// forge is a broker with a git server, and a machine that is attached for the agent.
type forge struct {
	*house
	git *gitkit.Server
	nc  *nats.Conn
	vol volume.Defined
	seq map[id.Call]uint64
}

const (
	clone = `{"connection":"forge","repo":"acme/shop"}`
	push  = `{"connection":"forge","repo":"acme/shop","branch":"agent/one"}`
)

func startForge(t *testing.T) *forge {
	t.Helper()
	h := start(t)
	f := &forge{house: h, git: gitkit.Start(t, token), nc: h.Conn(t, bus.BootUser).NC, seq: map[id.Call]uint64{},
		vol: volume.Defined{Volume: "vol_1", Environment: "env_box", Name: "main", Epoch: 3, Attached: &volume.Attachment{Attachment: "att_1", Holder: volume.Holder{Agent: "agt_a"}}}}
	f.define()
	f.heard(h.Say(schemas.Environments, eventlog.Draft{Key: "vol_1", Event: f.vol}))
	return f
}

// define makes the connection whose git server is the test's.
func (f *forge) define() {
	f.t.Helper()
	def := connection.Defined{Connection: "con_forge", Type: connection.GitHub, URL: f.github.URL, GitURL: f.git.URL, Private: []string{strings.TrimPrefix(f.github.URL, "http://"), f.git.Host()}}
	if err := f.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: token}); err != nil {
		f.t.Fatal(err)
	}
	_, listed := servicekit.Await(f.Kit, 1, func(l connection.Listed) bool { return l.Connection == "con_forge" })
	f.heard(listed.Seq)
}

// both grants what the machine's git tools and the connection lend.
func (f *forge) both(rule grant.Approval) {
	f.t.Helper()
	f.grant("grt_machine", "machine.*", grant.Never)
	f.grant("grt_forge", "forge.git_*", rule)
}

// admitted asks for a call and waits for its admission.
func (f *forge) admitted(c id.Call, tool, args string) call.Admitted {
	f.t.Helper()
	f.seq[c] = f.request(c, tool, args, nil)
	a, _ := await[call.Admitted](f.house, c)
	return a
}

func (f *forge) asks(c id.Call, service string, refs bool) connector.GitOpen {
	return connector.GitOpen{Attachment: "att_1", Epoch: 3, Run: run1, Call: c, Requested: f.seq[c], Service: service, Refs: refs, Protocol: "version=2"}
}

// say asks under an environment's subject, as its connector does.
func (f *forge) say(env, to string, header nats.Header, data []byte) (*nats.Msg, problem.Code, string) {
	f.t.Helper()
	m, err := f.nc.RequestMsg(&nats.Msg{Subject: bus.GitSubject(string(servicekit.Tenant), env, to), Header: header, Data: data}, 30*time.Second)
	if err != nil {
		f.t.Fatal(err)
	}
	code := problem.Code(m.Header.Get(connector.HeaderGitCode))
	return m, code, string(m.Data)
}

func (f *forge) open(env string, q connector.GitOpen) (o connector.GitOpened, code problem.Code, why string) {
	f.t.Helper()
	raw, err := json.Marshal(q)
	if err != nil {
		f.t.Fatal(err)
	}
	m, code, why := f.say(env, "open", nil, raw)
	if code == "" {
		if err := json.Unmarshal(m.Data, &o); err != nil {
			f.t.Fatal(err)
		}
	}
	return o, code, why
}

// send opens a request, sends its body in pieces, and reads the answer.
func (f *forge) send(q connector.GitOpen, body []byte) (answer []byte, code problem.Code, why string) {
	f.t.Helper()
	o, code, why := f.open("env_box", q)
	if code != "" {
		return nil, code, why
	}
	return f.carry(o, q.Refs, body)
}

func (f *forge) carry(o connector.GitOpened, refs bool, body []byte) (answer []byte, code problem.Code, why string) {
	f.t.Helper()
	n := 0
	header := func() nats.Header {
		n++
		return nats.Header{connector.HeaderGit: {o.Stream}, connector.HeaderGitSeq: {strconv.Itoa(n)}}
	}
	for last := refs; !last; {
		piece := body[:min(len(body), 100_000)]
		body = body[len(piece):]
		h := header()
		if last = len(body) == 0; last {
			h.Set(connector.HeaderGitLast, "1")
		}
		for range 2 { // the second time it is taken already
			if _, code, why := f.say("env_box", o.Broker+".put", h, piece); code != "" {
				return nil, code, why
			}
		}
	}
	n = 0
	for {
		h := header()
		first, code, why := f.say("env_box", o.Broker+".get", h, nil)
		if code != "" {
			return nil, code, why
		}
		m, code, _ := f.say("env_box", o.Broker+".get", h, nil)
		if code != "" || !bytes.Equal(m.Data, first.Data) {
			f.t.Errorf("asked again: %q, %d bytes and then %d", code, len(first.Data), len(m.Data))
		}
		answer = append(answer, m.Data...)
		if m.Header.Get(connector.HeaderGitLast) != "" {
			return answer, "", ""
		}
	}
}

func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

var (
	zero = strings.Repeat("0", 40)
	some = strings.Repeat("a", 40)
)

// Both sides have to allow a call, people are asked when either asks, and what is said of it names both grants.
func TestTwoKeys(t *testing.T) {
	f := startForge(t)
	refused := func(c id.Call, tool, args, want string) {
		t.Helper()
		f.request(c, tool, args, nil)
		r, _ := await[call.Refused](f.house, c)
		if !strings.Contains(r.Reason, want) {
			t.Errorf("%s: %q, want %q", c, r.Reason, want)
		}
	}
	refused("call_1", "machine.git_push", push, "machine.git_push: no active grant")
	f.grant("grt_machine", "machine.*", grant.Never)
	refused("call_2", "machine.git_push", push, "forge.git_push: no active grant")
	f.grant("grt_forge", "forge.git_*", grant.Always)
	refused("call_3", "machine.git_push", `{"connection":"forge","repo":"acme/other","branch":"b"}`, "forge.git_push: the grant does not include repository acme/other")
	refused("call_4", "machine.git_push", `{"connection":"none","repo":"acme/shop","branch":"b"}`, "the connection is not there")
	refused("call_5", "machine.git_push", `{"connection":"forge","repo":"acme/shop","branch":"../b"}`, "no name of a branch")
	refused("call_6", "forge.git_push", `{"owner":"acme","repo":"shop","branch":"b"}`, "not by itself")
	f.heard(f.Say(schemas.Approvals, eventlog.Draft{Key: "grt_forge", Event: grant.Created{Grant: "grt_forge", Agent: "agt_a", Approval: grant.Always, Tainted: true,
		Selector: grant.Selector{Tool: "forge.git_*", Repos: []string{"acme/shop"}}, Condition: `args.branch.startsWith("agent/")`, Quorum: 1, FourEyes: true}}))
	refused("call_7", "machine.git_push", `{"connection":"forge","repo":"acme/shop","branch":"main"}`, "forge.git_push: the grant's condition does not hold")

	f.seq["call_8"] = f.request("call_8", "machine.git_push", push, nil)
	held, at := await[call.Held](f.house, "call_8")
	if held.Grant != "grt_machine" || held.Lent != (call.Lent{Tool: "forge.git_push", Grant: "grt_forge"}) || !held.FourEyes || !strings.Contains(held.Reason, "forge.git_push: the grant holds every call") {
		t.Errorf("held %+v", held)
	}
	f.Say(schemas.Approvals, eventlog.Draft{Key: "apr_1", Run: run1, Event: approval.Decided{Approval: "apr_1", Call: "call_8", Run: run1, Requested: f.seq["call_8"], Digest: held.Digest, Approved: true, By: "mem_owner"}, Causation: at.Envelope.ID})
	a, _ := await[call.Admitted](f.house, "call_8")
	if a.Route != call.Exec || a.Grant != "grt_machine" || a.Lent != held.Lent || a.Approval != "apr_1" {
		t.Errorf("admitted %+v", a)
	}
}

// What is asked of the git server is the call's, with the credential, for as long as the call is under way, from the machine
// that it was admitted for.
func TestLentRequests(t *testing.T) {
	f := startForge(t)
	f.both(grant.Never)
	f.admitted("call_1", "machine.git_clone", clone)
	answer, code, why := f.send(f.asks("call_1", "git-upload-pack", true), nil)
	if code != "" || !strings.Contains(string(answer), "version 2") {
		t.Fatalf("%s %s: %q", code, why, answer)
	}
	answer, code, why = f.send(f.asks("call_1", "git-upload-pack", false), []byte(pkt("command=ls-refs\n")+"0001"+pkt("ref-prefix refs/heads/\n")+"0000"))
	if code != "" || !strings.Contains(string(answer), f.git.Ref("main")+" refs/heads/main") {
		t.Errorf("%s %s: %q", code, why, answer)
	}
	before := f.git.Requests.Load()
	f.request("call_read", "machine.git_status", `{}`, nil)
	await[call.Admitted](f.house, "call_read")
	for name, c := range map[string]struct {
		env    string
		change func(*connector.GitOpen)
	}{
		"another environment": {"env_other", func(*connector.GitOpen) {}},
		"another attachment":  {"env_box", func(q *connector.GitOpen) { q.Attachment = "att_2" }},
		"an older epoch":      {"env_box", func(q *connector.GitOpen) { q.Epoch = 2 }},
		"a push by a clone":   {"env_box", func(q *connector.GitOpen) { q.Service = "git-receive-pack" }},
		"no service":          {"env_box", func(q *connector.GitOpen) { q.Service = "../../x" }},
		"a call of nobody":    {"env_box", func(q *connector.GitOpen) { q.Call = "call_none" }},
		"another run":         {"env_box", func(q *connector.GitOpen) { q.Run, q.Call = "run_2", "call_2" }},
		"every run":           {"env_box", func(q *connector.GitOpen) { q.Run, q.Call = "*", "call_2" }},
		"a tool without":      {"env_box", func(q *connector.GitOpen) { q.Call, q.Requested = "call_read", 1 }},
		"a header":            {"env_box", func(q *connector.GitOpen) { q.Protocol = "a\r\nAuthorization: b" }},
	} {
		q := f.asks("call_1", "git-upload-pack", true)
		c.change(&q)
		if _, code, why := f.open(c.env, q); code != problem.Denied && code != problem.Invalid {
			t.Errorf("%s: %q %s", name, code, why)
		}
	}
	if f.git.Requests.Load() != before {
		t.Error("the git server was asked for something that was refused")
	}
	// A stream is its opener's.
	o, code, why := f.open("env_box", f.asks("call_1", "git-upload-pack", false))
	if code != "" {
		t.Fatal(why)
	}
	for _, to := range []struct{ env, stream string }{{"env_other", o.Stream}, {"env_box", "x"}} {
		if _, code, _ := f.say(to.env, o.Broker+".put", nats.Header{connector.HeaderGit: {to.stream}}, []byte("0000")); code != problem.NotFound {
			t.Errorf("a piece for %v: %q", to, code)
		}
	}
	// After the call's end nothing is lent, and what was open ends.
	f.Say(schemas.Environments, eventlog.Draft{Key: string(run1), Run: run1, Route: call.Exec, Event: call.Finished{Call: "call_1", Run: run1, Tool: "machine.git_clone", Body: call.Result{Result: json.RawMessage(`{}`)}}})
	if _, code, _ := f.open("env_box", f.asks("call_1", "git-upload-pack", true)); code != problem.Denied {
		t.Errorf("after the end: %q", code)
	}
	buskit.Eventually(t, "the open request ends", func() bool {
		_, code, _ := f.say("env_box", o.Broker+".get", nats.Header{connector.HeaderGit: {o.Stream}, connector.HeaderGitSeq: {"1"}}, nil)
		return code == problem.Denied
	})
}

// A push is of one ref, the call's, which is not deleted; what is not is refused before the git server is asked.
func TestLentPush(t *testing.T) {
	f := startForge(t)
	f.both(grant.Never)
	f.admitted("call_1", "machine.git_push", push)
	f.admitted("call_2", "machine.git_push", `{"connection":"forge","repo":"acme/shop","branch":"agent/one","commit":"`+some+`"}`)
	other := strings.Repeat("b", 40)
	const can = "\x00 report-status side-band-64k"
	before := f.git.Requests.Load()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 20<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		call id.Call
		body string
		want problem.Code
	}{
		"another ref":       {"call_1", pkt(zero+" "+some+" refs/heads/main"+can) + "0000PACK", problem.Denied},
		"a tag":             {"call_1", pkt(zero+" "+some+" refs/tags/agent/one"+can) + "0000PACK", problem.Denied},
		"two refs":          {"call_1", pkt(zero+" "+some+" refs/heads/agent/one"+can) + pkt(zero+" "+some+" refs/heads/main") + "0000PACK", problem.Denied},
		"the same twice":    {"call_1", pkt(zero+" "+some+" refs/heads/agent/one"+can) + pkt(zero+" "+other+" refs/heads/agent/one") + "0000PACK", problem.Denied},
		"a deletion":        {"call_1", pkt(some+" "+zero+" refs/heads/agent/one"+can) + "0000", problem.Denied},
		"another commit":    {"call_2", pkt(zero+" "+other+" refs/heads/agent/one"+can) + "0000PACK", problem.Denied},
		"a signed push":     {"call_1", pkt("push-cert\x00"+can) + pkt("certificate version 0.1\n") + "0000", problem.Invalid},
		"a ref and a space": {"call_1", pkt(zero+" "+some+" refs/heads/agent/one "+can) + "0000PACK", problem.Denied},
		"a hidden line":     {"call_1", pkt(zero+" "+some+" refs/heads/agent/one\n"+zero+" "+some+" refs/heads/main"+can) + "0000PACK", problem.Denied},
		"no commands":       {"call_1", "0000PACK", problem.Denied},
		"garbage":           {"call_1", "POST / HTTP/1.1\r\n\r\n", problem.Invalid},
		"a short line":      {"call_1", "0003", problem.Invalid},
		"cut off":           {"call_1", "00a0" + zero, problem.Invalid},
		"nothing":           {"call_1", "", problem.Invalid},
		"endless commands":  {"call_1", strings.Repeat(pkt("shallow "+some), 1000), problem.TooLarge},
	} {
		answer, code, why := f.send(f.asks(c.call, "git-receive-pack", false), []byte(c.body))
		if code != c.want || why == "" {
			t.Errorf("%s: %q %q, answered %q", name, code, why, answer)
		}
	}
	q := f.asks("call_1", "git-receive-pack", false)
	q.Gzip = true
	if _, code, _ := f.send(q, bomb.Bytes()); code != problem.Invalid {
		t.Errorf("a compressed push: %q", code)
	}
	if f.git.Requests.Load() != before {
		t.Error("the git server was asked for something that was refused")
	}
	// Compressed questions are read, up to a bound.
	f.admitted("call_3", "machine.git_clone", clone)
	q = f.asks("call_3", "git-upload-pack", false)
	q.Gzip = true
	if _, code, why := f.send(q, bomb.Bytes()); code != problem.TooLarge {
		t.Errorf("a bomb: %q %s", code, why)
	}
	var asked bytes.Buffer
	z = gzip.NewWriter(&asked)
	if _, err := io.WriteString(z, pkt("command=ls-refs\n")+"0001"+pkt("ref-prefix refs/heads/\n")+"0000"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for range 6 { // more often than a git server may be silent before it is let rest
		if _, code, why := f.send(q, asked.Bytes()[:asked.Len()-9]); code != problem.Invalid {
			t.Errorf("half a question: %q %s", code, why)
		}
	}
	if answer, code, why := f.send(q, asked.Bytes()); code != "" || !strings.Contains(string(answer), "refs/heads/main") {
		t.Errorf("a question: %q %s", code, why)
	}
	// More than goes through at all.
	if _, code, why := f.send(f.asks("call_1", "git-receive-pack", false), append([]byte(pkt(zero+" "+some+" refs/heads/agent/one"+can)+"0000PACK"), make([]byte, 2<<20)...)); code != problem.TooLarge || !strings.Contains(why, "git_max_bytes") {
		t.Errorf("a large push: %q %s", code, why)
	}
	if _, code, _ := f.send(f.asks("call_1", "git-receive-pack", true), nil); code != "" {
		t.Errorf("what is there: %q", code)
	}
}

// A git server that hangs, sends elsewhere, answers garbage or too much is told of in words, and costs nobody else anything.
func TestLentByABadServer(t *testing.T) {
	f := startForge(t)
	f.both(grant.Never)
	f.admitted("call_1", "machine.git_clone", clone)
	hanging := make(chan struct{})
	defer close(hanging)
	const kind = "application/x-git-upload-pack-advertisement"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   problem.Code
		why    string
	}{
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
		}, problem.Timeout, "git_idle"},
		"hangs in the middle": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, "001e# service")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, problem.Timeout, "git_idle"},
		"is a web page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, problem.Upstream, "does not answer as one"},
		"sends elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example.com/", http.StatusFound)
		}, problem.Denied, "renamed"},
		"forbids":       {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "suspended", http.StatusForbidden) }, problem.Denied, "suspended"},
		"wants another": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, problem.Denied, "credential"},
		"knows nothing": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, problem.NotFound, "acme/shop"},
		"says too much": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			for range 100 {
				if _, err := w.Write(make([]byte, 100_000)); err != nil {
					return
				}
			}
		}, problem.TooLarge, "git_max_bytes"},
	} {
		f.git.Answer.Store(&c.answer)
		_, code, why := f.send(f.asks("call_1", "git-upload-pack", true), nil)
		if code != c.code || !strings.Contains(why, c.why) || strings.Contains(why, token) {
			t.Errorf("a server that %s: %q %q", name, code, why)
		}
	}
	f.git.Answer.Store(nil)
	if _, code, why := f.send(f.asks("call_1", "git-upload-pack", true), nil); code != "" {
		t.Errorf("afterwards: %s %s", code, why)
	}
}

// Whoever takes either grant away, the attachment or the run ends what is lent in the middle.
func TestLendingEnds(t *testing.T) {
	f := startForge(t)
	flows := make(chan struct{}, 1)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "0004"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case flows <- struct{}{}:
			default:
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	f.git.Answer.Store(&answer)
	for i, c := range []struct {
		what, want string
		take       func()
	}{
		{"the connection's grant", "revoked", func() { f.revoke("grt_forge") }},
		{"the machine's grant", "revoked", func() { f.revoke("grt_machine") }},
		{"the attachment", "stale_lease", func() {
			gone := f.vol
			gone.Attached, gone.Epoch = nil, 3
			f.heard(f.Say(schemas.Environments, eventlog.Draft{Key: "vol_1", Event: gone}))
		}},
	} {
		f.both(grant.Never)
		name := id.Call(fmt.Sprintf("call_%d", i+1))
		f.admitted(name, "machine.git_clone", clone)
		o, code, why := f.open("env_box", f.asks(name, "git-upload-pack", true))
		if code != "" {
			t.Fatalf("%s: %s", code, why)
		}
		<-flows
		c.take()
		_, code, why = f.carry(o, true, nil)
		if code != problem.Denied || !strings.Contains(why, c.want) {
			t.Errorf("%s was taken: %q %q", c.what, code, why)
		}
		if _, code, _ := f.open("env_box", f.asks(name, "git-upload-pack", true)); code != problem.Denied {
			t.Errorf("%s was taken, and a request is opened: %q", c.what, code)
		}
		select { // what was buffered before
		case <-flows:
		default:
		}
	}
}

// Whoever may change a connection may not have its credential sent to a git server of their own.
func TestGitURLKeepsTheCredential(t *testing.T) {
	f := startForge(t)
	def := connection.Defined{Connection: "con_forge", Type: connection.GitHub, URL: f.github.URL, GitURL: "https://evil.example.com"}
	if err := f.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("another git server with the same credential: %v", err)
	}
	def.GitURL = "ftp://x"
	if err := f.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: token}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("no URL: %v", err)
	}
}
