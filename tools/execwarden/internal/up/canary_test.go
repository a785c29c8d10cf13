package up

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/sample/fakegithub"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

const modelKey = "sk-canary/of+the=model-key"

// findings gathers everything that anybody could read, by where it was found.
type findings struct {
	mu   sync.Mutex
	text map[string]*bytes.Buffer
}

func (p *findings) add(where string, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text[where] == nil {
		p.text[where] = &bytes.Buffer{}
	}
	p.text[where].Write(text)
	p.text[where].WriteByte('\n')
}

// spellings are the ways in which a secret could have been written down.
func spellings(secret string) []string {
	quoted, err := json.Marshal(secret)
	if err != nil {
		panic(err)
	}
	return []string{
		secret, strings.Trim(string(quoted), `"`), url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
		// Inside a longer text, base64 has one of three shapes; its middle is the same.
		base64.RawStdEncoding.EncodeToString([]byte(" " + secret))[4:24], base64.RawStdEncoding.EncodeToString([]byte("  " + secret))[4:24],
	}
}

// Secrets are planted, and runs go well, badly and nowhere; then everything that was written down is searched for them.
func TestNoCredentialIsEverWrittenDown(t *testing.T) {
	found := &findings{text: map[string]*bytes.Buffer{}}
	logs := &tee{place: "logs", to: found}
	w := newWorldAround(t)
	w.logs = logs
	w.start()
	t.Cleanup(func() { w.stop() })
	w.configure(grant.Never)

	script := scriptmodel.New(sample.Script())
	model := sample.NewModel(sample.Script())
	model.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Header.Get("Authorization") != "Bearer "+modelKey {
			t.Errorf("the model is asked with %q", r.Header.Get("Authorization"))
		}
		found.add("model input", body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		script.ServeHTTP(rw, r)
	})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	agents, err := w.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	def := agents[0]
	def.Model = agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-triage", Private: []string{hostport(model.URL())}}
	if err := w.PutAgent(t.Context(), def, modelKey); err != nil {
		t.Fatal(err)
	}

	login := w.login()

	faults := []fakegithub.Fault{{}, {Method: http.MethodPost, Status: http.StatusInternalServerError}, {Method: http.MethodPost, Abort: true, AfterEffect: true},
		{Method: http.MethodPost, Status: http.StatusUnauthorized}}
	for i, fault := range faults {
		if fault.Method != "" {
			w.github.Inject(fault)
		}
		w.deliver("cccccccc-000" + string(rune('1'+i)))
		w.endedRuns(i + 1)
	}
	w.tellAboutOne(len(faults))
	w.mustVerify()

	token, err := os.ReadFile(w.endpoints.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/agents", "/v1/connections", "/v1/grants", "/v1/triggers", "/v1/runs", "/v1/events?limit=200", "/v1/approvals", "/v1/targets", "/v1/agents/triage/access"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.endpoints.API+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, resp.Status, err)
		}
		found.add("API "+path, body)
	}
	resp, err := http.Get(w.endpoints.Ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	found.add("metrics", metrics)
	w.readStreams(found)
	w.readLedger(found)

	secrets := map[string]string{"GitHub token": githubToken, "webhook secret": hookSecret, "model key": modelKey, "signing secret": signingSecret, "chat's URL": chatPath, "owner's token": strings.TrimSpace(string(token))}
	for i, secret := range login.Secrets() {
		secrets[fmt.Sprint("login's secret ", i)] = secret
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	for where, text := range found.text {
		if text.Len() < 10 && where != "logs" {
			t.Errorf("%s: only %d bytes were looked at", where, text.Len())
		}
		for name, secret := range secrets {
			for _, spelling := range spellings(secret) {
				if i := strings.Index(text.String(), spelling); i >= 0 {
					t.Errorf("the %s stands in %s: …%.80q", name, where, text.String()[max(0, i-40):])
				}
			}
		}
	}
}

// The secrets of targets.
const (
	signingSecret = "whsec_Y2FuYXJ5IG9mIHRoZSBzaWduaW5nIHNlY3JldCBvZiBhIHRhcmdldA=="
	chatPath      = "/services/T000/canary+of+the/chats-url"
)

// tellAboutOne holds one more run: one target takes its notices, the other is a chat that does not.
func (w *world) tellAboutOne(runs int) {
	w.t.Helper()
	taken := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == chatPath {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		select {
		case taken <- struct{}{}:
		default:
		}
	}))
	w.t.Cleanup(receiver.Close)
	for _, def := range []struct {
		target.Defined
		address, secret string
	}{
		{target.Defined{Target: "tgt_hook", Type: target.Webhook, Private: []string{hostport(receiver.URL)}}, receiver.URL + "/hook", signingSecret},
		{target.Defined{Target: "tgt_chat", Type: target.Slack, Private: []string{hostport(receiver.URL)}}, receiver.URL + chatPath, ""},
	} {
		if _, err := w.PutTarget(w.t.Context(), def.Defined, def.address, def.secret); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.TestTarget(w.t.Context(), "chat"); problem.CodeOf(err) != problem.Upstream {
		w.t.Errorf("a chat that does not take it: %v", err)
	}
	if err := w.PutGrant(w.t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_triage", Approval: grant.Always, Tainted: true,
		Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}}); err != nil {
		w.t.Fatal(err)
	}
	w.deliver("cccccccc-0009")
	a := w.waitingApproval()
	<-taken
	w.approve(a)
	w.endedRuns(runs + 1)
	for _, kind := range []string{"notice.sent", "notice.retried"} {
		buskit.Eventually(w.t, kind, func() bool {
			page, err := w.Events(w.t.Context(), client.Filter{Kind: kind}, client.Cursor{})
			return err == nil && len(page.Events) > 0
		})
	}
}

// readStreams reads every message of every stream, the sealed secrets included.
func (w *world) readStreams(found *findings) {
	w.t.Helper()
	boot, err := bus.Connect(w.t.Context(), w.nats.Client(bus.BootUser, "canary"), slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	defer boot.Close()
	streams := boot.JS.ListStreams(w.t.Context())
	for info := range streams.Info() {
		s, err := boot.JS.Stream(w.t.Context(), info.Config.Name)
		if err != nil {
			w.t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
			m, err := s.GetMsg(w.t.Context(), seq)
			if err != nil {
				continue // replaced by a newer one
			}
			found.add("stream "+info.Config.Name, []byte(m.Subject))
			found.add("stream "+info.Config.Name, m.Data)
			for _, values := range m.Header {
				found.add("stream "+info.Config.Name, []byte(strings.Join(values, "\n")))
			}
		}
	}
	if err := streams.Err(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) readLedger(found *findings) {
	w.t.Helper()
	db, err := pgx.Connect(w.t.Context(), w.postgres.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close(w.t.Context())
	rows, err := db.Query(w.t.Context(), `SELECT raw, coalesce(doc::text, '') FROM ledger_body`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var raw []byte
		var doc string
		if err := rows.Scan(&raw, &doc); err != nil {
			w.t.Fatal(err)
		}
		found.add("ledger", raw)
		found.add("ledger", []byte(doc))
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
}

// tee keeps the log beside passing it on.
type tee struct {
	place string
	to    *findings
}

func (t *tee) Write(p []byte) (int, error) {
	t.to.add(t.place, p)
	return os.Stderr.Write(p)
}
