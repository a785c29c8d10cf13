package github_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "ghp_canary_of_the_test"

// hub is a GitHub that answers as it is told and remembers what it was asked.
type hub struct {
	*httptest.Server
	*github.Provider
	mu     sync.Mutex
	asked  []string
	answer http.HandlerFunc
}

func start(t *testing.T, answer http.HandlerFunc) *hub {
	t.Helper()
	h := &hub{answer: answer}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked = append(h.asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Authorization"))
		answer := h.answer
		h.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(h.Server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	h.Provider = provider(t, github.Config{URL: h.URL, Transport: transport})
	return h
}

// provider makes a provider that does not pause between writes.
func provider(t *testing.T, cfg github.Config) *github.Provider {
	t.Helper()
	if cfg.Credential == nil {
		cfg.Credential = func(context.Context) (vault.Secret, error) { return vault.NewSecret(canary), nil }
	}
	if cfg.WriteEvery == 0 {
		cfg.WriteEvery = time.Nanosecond
	}
	p, err := github.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// says changes the answer while the hub is being asked.
func (h *hub) says(answer http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *hub) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.asked...)
}

func (h *hub) do(t *testing.T, tool, args string) (upstream.Result, error) {
	t.Helper()
	return h.Call(t.Context(), upstream.Call{Call: "call_1", Tool: tool, Args: json.RawMessage(args), Effect: "call_1"})
}

const comment = `{"owner":"acme","repo":"shop","issue_number":7,"body":"On it <!-- & so on -->"}`

func TestComment(t *testing.T) {
	var sent struct{ Body string }
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":42,"body":"b","user":{"login":"bot"},"html_url":"https://x/7"}`)
	})
	got, err := h.do(t, "add_issue_comment", comment)
	if err != nil || got.ToolError || string(got.Content) != `{"id":42,"author":"bot","body":"b","url":"https://x/7"}` {
		t.Errorf("%s, %v", got.Content, err)
	}
	if want := "POST /repos/acme/shop/issues/7/comments Bearer " + canary; len(h.requests()) != 1 || h.requests()[0] != want {
		t.Errorf("%v", h.requests())
	}
	if !strings.HasPrefix(sent.Body, "On it <!-- & so on -->") || !strings.HasSuffix(sent.Body, "<!-- execwarden:call_1 -->") {
		t.Errorf("sent %q", sent.Body)
	}
}

// A grant is compared with owner and repo; whatever else is written into them never becomes a path (go-github#4150).
func testArgumentsThatAreRefused(t *testing.T) {
	h := start(t, func(http.ResponseWriter, *http.Request) {})
	for _, at := range []struct{ owner, repo string }{
		{"acme", "../evil/secret"}, {"acme", ".."}, {"acme", "."}, {"acme", ""}, {"", "shop"}, {"..", "shop"}, {"../orgs", "evil"}, {"acme", "shop/actions/secrets#"},
		{"acme", "shop/actions/secrets?"}, {"acme", "shop%2f..%2f..%2fevil"}, {"acme", `..\evil`}, {"acme", "shop\n"}, {"acme", "shop\x00"}, {"acme/shop", "x"}, {"acme", "sh op"},
		{"-acme", "shop"}, {"acme", strings.Repeat("a", 101)}, {strings.Repeat("a", 40), "shop"}, {"аcme", "shop"}, {"acme", "%2e%2e"}, {"acme", "shop;x"}, {"acme", "//evil.example"},
	} {
		args, err := json.Marshal(map[string]any{"owner": at.owner, "repo": at.repo, "issue_number": 1, "body": "x"})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.do(t, "add_issue_comment", string(args)); problem.CodeOf(err) != problem.Invalid && problem.CodeOf(err) != problem.TooLarge || upstream.Ambiguous(err) {
			t.Errorf("%q/%q: %s, %v", at.owner, at.repo, got.Content, err)
		}
	}
	for name, args := range map[string]string{
		"no arguments":          `{}`,
		"no object":             `[]`,
		"an unknown argument":   `{"owner":"a","repo":"b","issue_number":1,"body":"x","labels":["x"]}`,
		"owner in capitals":     `{"Owner":"a","repo":"b","issue_number":1,"body":"x"}`,
		"a number for text":     `{"owner":1,"repo":"b","issue_number":1,"body":"x"}`,
		"null":                  `{"owner":null,"repo":"b","issue_number":1,"body":"x"}`,
		"number zero":           `{"owner":"a","repo":"b","issue_number":0,"body":"x"}`,
		"a negative number":     `{"owner":"a","repo":"b","issue_number":-1,"body":"x"}`,
		"half a number":         `{"owner":"a","repo":"b","issue_number":1.5,"body":"x"}`,
		"a huge number":         `{"owner":"a","repo":"b","issue_number":99999999999999999999,"body":"x"}`,
		"a path for a number":   `{"owner":"a","repo":"b","issue_number":"1/../2","body":"x"}`,
		"text for a number":     `{"owner":"a","repo":"b","issue_number":"one","body":"x"}`,
		"two names, one number": `{"owner":"a","repo":"b","issue_number":1,"issueNumber":2,"body":"x"}`,
		"an empty body":         `{"owner":"a","repo":"b","issue_number":1,"body":" \n"}`,
	} {
		_, err := h.do(t, "add_issue_comment", args)
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if name == "an unknown argument" && !strings.Contains(problem.DetailOf(err).Message, `"labels"`) {
			t.Errorf("which argument is unknown is not told: %v", err)
		}
	}
	if _, err := h.do(t, "add_issue_comment", `{"owner":"a","repo":"b","issue_number":1,"body":"`+strings.Repeat("ä", 65_001)+`"}`); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("a long comment: %v", err)
	}
	if _, err := h.do(t, "delete_repository", `{"owner":"a","repo":"b"}`); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("a tool that is none: %v", err)
	}
	if _, err := h.do(t, "issue_read", `{"owner":"a","repo":"b","issue_number":1,"method":"delete"}`); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a method that is none: %v", err)
	}
	if asked := h.requests(); len(asked) != 0 {
		t.Errorf("GitHub was asked %v", asked)
	}
}

// Models write numbers as text and names as they remember them.
func testForgivingArguments(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"number":7,"title":"T"}`) })
	for _, args := range []string{
		`{"method":"get","owner":"acme","repo":"shop","issue_number":"7"}`, `{"method":"get","owner":"acme","repo":"shop","issueNumber":7}`,
		`{"method":"get","owner":"acme","repo":"shop","number":"7"}`, `{"method":"get","owner":"acme","repo":"shop","pullNumber":7,"page":"1"}`,
	} {
		if got, err := h.do(t, "issue_read", args); err != nil || !strings.Contains(string(got.Content), `"number":7`) {
			t.Errorf("%s: %s, %v", args, got.Content, err)
		}
	}
}

// The credential is for one host; a redirect, even within it, is an answer and not a way (go-github#4190).
func testRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.RequestURI+" "+r.Header.Get("Authorization"))
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var to string
		h := start(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) })
		for _, to = range []string{other.URL + "/steal", "/repos/evil/secret/issues/1", "//" + strings.TrimPrefix(other.URL, "http://") + "/x"} {
			for tool, args := range map[string]string{"add_issue_comment": comment, "issue_read": `{"method":"get","owner":"acme","repo":"shop","issue_number":7}`} {
				before := len(h.requests())
				got, err := h.do(t, tool, args)
				if err == nil && !got.ToolError {
					t.Errorf("%s, %d to %s: %s", tool, status, to, got.Content)
				}
				if n := len(h.requests()) - before; n != 1 {
					t.Errorf("%s, %d to %s: %d requests", tool, status, to, n)
				}
			}
		}
	}
	if len(elsewhere) != 0 {
		t.Errorf("another host was asked %v", elsewhere)
	}
}

func TestRateLimits(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"429": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429); fmt.Fprint(w, `{"message":"slow"}`) },
		"403 and Retry-After": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message":"wait"}`)
		},
		"403 of a secondary limit": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message":"You have exceeded a secondary rate limit."}`)
		},
		"403 with nothing left": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Limit", "60")
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", "4102444800")
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message":"API rate limit exceeded"}`)
		},
		"403 with its document": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message":"x","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`)
		},
	} {
		h := start(t, answer)
		for range 2 { // the second one is not sent
			got, err := h.do(t, "add_issue_comment", comment)
			if err != nil || !got.ToolError || !strings.Contains(string(got.Content), "rate limit") || !strings.Contains(string(got.Content), `"retry_after_seconds":`) {
				t.Errorf("%s: %s, %v", name, got.Content, err)
			}
		}
		if n := len(h.requests()); n != 1 {
			t.Errorf("%s: GitHub was asked %d times", name, n)
		}
	}
}

// What GitHub refused had no effect; what it did not answer may have had one, if it writes and was sent.
func TestAnswers(t *testing.T) {
	cut := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if status != 0 {
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(status)
				fmt.Fprint(w, `{"id":`)
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		}
	}
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) }
	}
	for name, c := range map[string]struct {
		answer               http.HandlerFunc
		toolError, ambiguous bool
	}{
		"401":                     {say(401, `{"message":"Bad credentials"}`), true, false},
		"403":                     {say(403, `{"message":"Resource not accessible"}`), true, false},
		"404":                     {say(404, `{"message":"Not Found"}`), true, false},
		"410":                     {say(410, `{"message":"Issues are disabled"}`), true, false},
		"422":                     {say(422, `{"message":"Validation Failed"}`), true, false},
		"422 that is no JSON":     {say(422, `<html>`), true, false},
		"500":                     {say(500, ``), false, true},
		"502":                     {say(502, `<html>`), false, true},
		"cut before the answer":   {cut(0), false, true},
		"cut inside the answer":   {cut(201), false, true},
		"201 that is no JSON":     {say(201, `<html>`), false, true},
		"201 of another type":     {say(201, `{"id":"text"}`), false, true},
		"201 and half of JSON":    {say(201, `{"id":1`), false, true},
		"a status that is no one": {say(299, ``), false, true},
	} {
		h := start(t, c.answer)
		got, err := h.do(t, "add_issue_comment", comment)
		if got.ToolError != c.toolError || upstream.Ambiguous(err) != c.ambiguous || c.toolError != (err == nil) {
			t.Errorf("%s: %s, %v, ambiguous %v", name, got.Content, err, upstream.Ambiguous(err))
		}
		if err != nil && (problem.CodeOf(err) != problem.Upstream || strings.Contains(err.Error(), canary)) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := h.do(t, "issue_read", `{"method":"get","owner":"acme","repo":"shop","issue_number":7}`); upstream.Ambiguous(err) {
			t.Errorf("%s: a read is ambiguous", name)
		}
	}
	h := start(t, nil)
	h.Server.Close() // nobody takes the connection: nothing was sent
	if _, err := h.do(t, "add_issue_comment", comment); problem.CodeOf(err) != problem.Upstream || upstream.Ambiguous(err) {
		t.Errorf("nobody there: %v, ambiguous %v", err, upstream.Ambiguous(err))
	}
	h = start(t, func(http.ResponseWriter, *http.Request) {})
	broken := provider(t, github.Config{URL: h.URL, Transport: http.DefaultTransport, Credential: func(context.Context) (vault.Secret, error) {
		return vault.Secret{}, problem.New(problem.Unavailable, "the secret cannot be read now")
	}})
	if _, err := broken.Call(t.Context(), upstream.Call{Tool: "add_issue_comment", Args: json.RawMessage(comment)}); err == nil || upstream.Ambiguous(err) || len(h.requests()) != 0 {
		t.Errorf("no credential: %v, ambiguous %v", err, upstream.Ambiguous(err))
	}
}

// The effect of a call is found by its marker, and nobody else's.
func TestProbe(t *testing.T) {
	page := func(bodies ...string) string {
		var list []map[string]any
		for i, b := range bodies {
			list = append(list, map[string]any{"id": i + 1, "body": b})
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	pages := []string{page("hello", "x <!-- execwarden:call_12 -->"), page("<!-- execwarden:call_1x -->", "On it\n\n<!-- execwarden:call_1 -->")}
	h := start(t, nil)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "2" {
			fmt.Fprint(w, pages[1])
			return
		}
		w.Header().Set("Link", fmt.Sprintf(`<%s/repos/acme/shop/issues/7/comments?page=2>; rel="next"`, h.URL))
		fmt.Fprint(w, pages[0])
	}
	c := upstream.Call{Tool: "add_issue_comment", Args: json.RawMessage(comment), Effect: "call_1"}
	got, found, err := h.Probe(t.Context(), c)
	if err != nil || !found || !strings.Contains(string(got.Content), `"id":2`) {
		t.Errorf("%s, %v, %v", got.Content, found, err)
	}
	c.Effect = "call_2"
	if _, found, err = h.Probe(t.Context(), c); err != nil || found {
		t.Errorf("an effect that is not there: %v, %v", found, err)
	}
	// An issue without end is not looked through for ever, and not taken for one without the effect.
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", fmt.Sprintf(`<%s/x?page=%d>; rel="next"`, h.URL, len(h.requests())+1))
		fmt.Fprint(w, pages[0])
	}
	if _, found, err = h.Probe(t.Context(), c); err == nil || found {
		t.Errorf("endless pages: %v, %v", found, err)
	}
	h.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }
	if _, found, err = h.Probe(t.Context(), c); err == nil || found {
		t.Errorf("no answer: %v, %v", found, err)
	}
	if _, _, err = h.Probe(t.Context(), upstream.Call{Tool: "issue_read", Args: json.RawMessage(`{"method":"get","owner":"acme","repo":"shop","issue_number":7}`)}); err == nil {
		t.Error("a tool without a probe is probed")
	}
}

func TestNew(t *testing.T) {
	for _, base := range []string{"", "not a url", "/api", "https://user:pass@api.github.com", "https://"} {
		if _, err := github.New(github.Config{URL: base}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// A token of a person's that GitHub takes no more is not tried again: there is no other.
func TestBadTokenIsTriedOnce(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"message":"Bad credentials"}`)
	})
	if got, err := h.do(t, "add_issue_comment", comment); err != nil || !got.ToolError || len(h.requests()) != 1 {
		t.Errorf("%s, %v, asked %d times", got.Content, err, len(h.requests()))
	}
}
