package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is what the server saw of one request.
type asked struct {
	Path   string
	Header http.Header
	Body   string
}

// serve starts a real server, and returns a provider in front of it and the request that it saw last.
func serve(t *testing.T, protocol Protocol, limits Limits, h http.HandlerFunc) (Provider, *asked) {
	t.Helper()
	saw := &asked{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*saw = asked{r.URL.Path, r.Header, string(body)}
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	p, err := New(Config{Protocol: protocol, BaseURL: srv.URL, Key: "sk-canary", Model: "m-1", Limits: limits}, srv.Client())
	if err != nil {
		t.Fatal(err)
	}
	return p, saw
}

// sse answers with each piece as the data of one event.
func sse(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, p := range pieces {
			fmt.Fprintf(w, "data: %s\n\n", p)
		}
	}
}

func hello() Request {
	return Request{Messages: []Message{{Role: RoleUser, Text: "hello"}}, MaxOutputTokens: 100}
}

// conversation has everything that a request can say.
func conversation() Request {
	return Request{
		Model: "m-2", System: "be brief", MaxOutputTokens: 5,
		Tools: []Tool{{Name: "a__b", Description: "does b", Schema: json.RawMessage(`{"type":"object"}`), More: "more of b"}},
		Messages: []Message{
			{Role: RoleUser, Text: "go"},
			{Role: RoleAssistant, ToolCalls: []ToolCall{
				{"c1", "a__b", json.RawMessage(`{"x":1}`)},
				{"c2", "a__b", json.RawMessage(`{}`)},
			}},
			{Role: RoleTool, ToolResults: []ToolResult{{"c2", "no", true}, {"c1", "yes", false}}},
			{Role: RoleUser, Text: "and?"},
		},
	}
}

func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := errors.Join(json.Unmarshal([]byte(got), &g), json.Unmarshal([]byte(want), &w)); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func wantFailure(t *testing.T, err error, code problem.Code, retryable bool) *Failure {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("err = %v, want a Failure", err)
	}
	if f.Problem.Code != code || f.Retryable != retryable {
		t.Fatalf("failure = %v, retryable %v; want %s, %v", f, f.Retryable, code, retryable)
	}
	if problem.CodeOf(err) != code {
		t.Errorf("problem.CodeOf = %s, want %s", problem.CodeOf(err), code)
	}
	if strings.Contains(f.Error(), "sk-canary") {
		t.Errorf("the failure shows the key: %v", f)
	}
	return f
}

func complete(t *testing.T, p Provider, r Request) (Answer, string) {
	t.Helper()
	var deltas strings.Builder
	a, err := p.Complete(t.Context(), r, func(s string) { deltas.WriteString(s) })
	if err != nil {
		t.Fatal(err)
	}
	return a, deltas.String()
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no URL":             {Protocol: OpenAI},
		"relative URL":       {Protocol: OpenAI, BaseURL: "/v1"},
		"other scheme":       {Protocol: OpenAI, BaseURL: "file:///etc/passwd"},
		"password in URL":    {Protocol: OpenAI, BaseURL: "https://u:sk-canary@h"},
		"broken, password":   {Protocol: OpenAI, BaseURL: "https://u:sk-canary@h:port"},
		"query":              {Protocol: OpenAI, BaseURL: "https://h?key=sk-canary"},
		"fragment":           {Protocol: OpenAI, BaseURL: "https://h#x"},
		"unknown protocol":   {Protocol: "smoke", BaseURL: "https://h"},
		"key with a newline": {Protocol: OpenAI, BaseURL: "https://h", Key: "sk-canary\r\nX-Evil: 1"},
	} {
		_, err := New(cfg, http.DefaultClient)
		if problem.CodeOf(err) != problem.Invalid || strings.Contains(err.Error(), "sk-canary") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	if _, err := New(Config{Protocol: OpenAI, BaseURL: "https://h"}, nil); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("no client: err = %v", err)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		protocol   Protocol
		base, want string
	}{
		{OpenAI, "http://h:1", "http://h:1/v1/chat/completions"},
		{OpenAI, "http://h:1/", "http://h:1/v1/chat/completions"},
		{OpenAI, "http://h:1/v1", "http://h:1/v1/chat/completions"},
		{OpenAI, "http://h:1/api/v3/", "http://h:1/api/v3/chat/completions"},
		{Anthropic, "http://h:1", "http://h:1/v1/messages"},
		{Anthropic, "http://h:1/v1/", "http://h:1/v1/messages"},
		{Anthropic, "http://h:1/proxy", "http://h:1/proxy/v1/messages"},
	} {
		p, err := New(Config{Protocol: tc.protocol, BaseURL: tc.base}, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		switch p := p.(type) {
		case *openAI:
			got = p.url
		case *anthropic:
			got = p.url
		}
		if got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.protocol, tc.base, got, tc.want)
		}
	}
}

func TestKeyNeverShows(t *testing.T) {
	t.Parallel()
	cfg := Config{Protocol: OpenAI, BaseURL: "http://h", Key: "sk-canary"}
	p, err := New(cfg, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(cfg)
	shown := []string{string(raw), cfg.Key.String(), cfg.Key.GoString(), cfg.Key.LogValue().String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, cfg.Key), fmt.Sprintf(verb, p))
	}
	for _, s := range shown {
		// 736b2d is sk- in hexadecimal.
		if strings.Contains(s, "canary") || strings.Contains(s, "736b2d") {
			t.Errorf("the key shows: %s", s)
		}
	}
	if cfg.Key.Reveal() != "sk-canary" {
		t.Error("Reveal does not return the key")
	}
}

func TestRequestsThatAreNotSent(t *testing.T) {
	t.Parallel()
	p, saw := serve(t, OpenAI, Limits{}, sse())
	call := ToolCall{"c1", "a__b", json.RawMessage(`{}`)}
	user := Message{Role: RoleUser, Text: "x"}
	asks := Message{Role: RoleAssistant, ToolCalls: []ToolCall{call}}
	result := func(id string) Message { return Message{Role: RoleTool, ToolResults: []ToolResult{{CallID: id}}} }
	for name, messages := range map[string][]Message{
		"none":                     {},
		"no result at the end":     {user, asks},
		"no result before text":    {user, asks, user},
		"result twice":             {user, asks, result("c1"), result("c1")},
		"result of nothing":        {user, result("c1")},
		"result of another":        {user, asks, result("c2")},
		"two calls, one id":        {user, {Role: RoleAssistant, ToolCalls: []ToolCall{call, call}}, result("c1")},
		"dotted name":              {user, {Role: RoleAssistant, ToolCalls: []ToolCall{{"c1", "a.b", call.Args}}}, result("c1")},
		"arguments not an object":  {user, {Role: RoleAssistant, ToolCalls: []ToolCall{{"c1", "a", json.RawMessage(`[]`)}}}, result("c1")},
		"user with calls":          {{Role: RoleUser, Text: "x", ToolCalls: []ToolCall{call}}},
		"silent user":              {{Role: RoleUser}},
		"tool with text":           {user, asks, {Role: RoleTool, Text: "x", ToolResults: []ToolResult{{CallID: "c1"}}}},
		"unknown role":             {{Role: "system", Text: "x"}},
		"raw that is not an array": {user, {Role: RoleAssistant, Text: "x", Raw: json.RawMessage(`{}`)}},
	} {
		_, err := p.Complete(t.Context(), Request{Messages: messages, MaxOutputTokens: 1}, nil)
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	for name, r := range map[string]Request{
		"no limit":   {Messages: []Message{user}},
		"tool name":  {Messages: []Message{user}, MaxOutputTokens: 1, Tools: []Tool{{Name: "a.b", Schema: json.RawMessage(`{}`)}}},
		"bad schema": {Messages: []Message{user}, MaxOutputTokens: 1, Tools: []Tool{{Name: "a", Schema: json.RawMessage(`{`)}}},
	} {
		if _, err := p.Complete(t.Context(), r, nil); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	if saw.Path != "" {
		t.Errorf("a request was sent: %s", saw.Body)
	}
}

func TestCancelAndDeadline(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 1)
	p, _ := serve(t, Anthropic, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		sse(`{"type":"ping"}`)(w, r)
		w.(http.Flusher).Flush()
		started <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	_, err := p.Complete(ctx, hello(), nil)
	wantFailure(t, err, problem.Cancelled, false)

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Complete(ctx, hello(), nil)
	wantFailure(t, err, problem.Timeout, false)
}

func TestSilenceEndsAStream(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{OpenAI, Anthropic} {
		p, _ := serve(t, protocol, Limits{Silence: 20 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			sse()(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		_, err := p.Complete(t.Context(), hello(), nil)
		wantFailure(t, err, problem.Timeout, true)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the key went elsewhere: %v", r.Header)
	}))
	defer other.Close()
	for _, protocol := range []Protocol{OpenAI, Anthropic} {
		p, _ := serve(t, protocol, Limits{}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		})
		_, err := p.Complete(t.Context(), hello(), nil)
		wantFailure(t, err, problem.Upstream, false)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(nil)
	srv.Close()
	p, err := New(Config{Protocol: OpenAI, BaseURL: srv.URL, Model: "m"}, &http.Client{Transport: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Complete(t.Context(), hello(), nil)
	wantFailure(t, err, problem.Unavailable, true)
}
