package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/google/go-cmp/cmp"
)

const (
	openAIStop  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	openAITools = `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`
	openAIUsage = `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`
)

func openAIText(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, s)
}

func openAICalls(deltas string) string {
	return `{"choices":[{"index":0,"delta":{"tool_calls":[` + deltas + `]}}]}`
}

func TestOpenAIText(t *testing.T) {
	t.Parallel()
	p, saw := serve(t, OpenAI, Limits{}, sse(openAIText("Hel"), openAIText("lo"), openAIStop, openAIUsage, "[DONE]"))
	a, deltas := complete(t, p, hello())
	want := Answer{Text: "Hello", StopReason: StopEnd, Usage: Usage{11, 7, true}}
	if diff := cmp.Diff(want, a); diff != "" || deltas != "Hello" {
		t.Errorf("deltas %q, answer (-want +got):\n%s", deltas, diff)
	}
	if saw.Path != "/v1/chat/completions" || saw.Header.Get("Authorization") != "Bearer sk-canary" {
		t.Errorf("saw %s, %v", saw.Path, saw.Header)
	}
	wantJSON(t, saw.Body, `{"model":"m-1","messages":[{"role":"user","content":"hello"}],"max_tokens":100,"stream":true,"stream_options":{"include_usage":true}}`)
}

func TestOpenAIRequest(t *testing.T) {
	t.Parallel()
	p, saw := serve(t, OpenAI, Limits{}, sse(openAIStop))
	complete(t, p, conversation())
	wantJSON(t, saw.Body, `{"model":"m-2","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},
		"tools":[{"type":"function","function":{"name":"a__b","description":"does b","parameters":{"type":"object"}}}],
		"messages":[
			{"role":"system","content":"be brief\n\nAbout the tool a__b. more of b"},
			{"role":"user","content":"go"},
			{"role":"assistant","content":"","tool_calls":[
				{"id":"c1","type":"function","function":{"name":"a__b","arguments":"{\"x\":1}"}},
				{"id":"c2","type":"function","function":{"name":"a__b","arguments":"{}"}}]},
			{"role":"tool","content":"Error: no","tool_call_id":"c2"},
			{"role":"tool","content":"yes","tool_call_id":"c1"},
			{"role":"user","content":"and?"}]}`)
}

// A description that OpenAI would refuse is cut, and what is said besides has a place without a limit, also when there are
// no instructions.
func TestOpenAITakesShortDescriptions(t *testing.T) {
	t.Parallel()
	p, err := New(Config{Protocol: OpenAI, BaseURL: "https://api.openai.com/v1"}, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	more := strings.Repeat("x", 20<<10)
	r := hello()
	r.Tools = []Tool{{Name: "a", Description: strings.Repeat("ö", 1024)}, {Name: "b", Description: strings.Repeat("ö", 1025), More: more}}
	w := p.(*openAI).request(r)
	if got := w.Tools[0].Function.Description; got != r.Tools[0].Description {
		t.Errorf("a description of 1,024 characters is cut to %d bytes", len(got))
	}
	if got := w.Tools[1].Function.Description; got != strings.Repeat("ö", 1023)+"…" {
		t.Errorf("one of 1,025 is %q", got)
	}
	if got := w.Messages[0]; got.Role != "system" || got.Content != "About the tool b. "+more || len(w.Messages) != 2 {
		t.Errorf("%.100v", w.Messages)
	}
}

func TestOpenAIItselfWantsTheNewLimit(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]bool{"https://api.openai.com/v1": true, "https://api.openai.com.evil.example": false} {
		p, err := New(Config{Protocol: OpenAI, BaseURL: base}, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.(*openAI).request(hello()).MaxCompletionTokens == 100; got != want {
			t.Errorf("%s: max_completion_tokens set: %v, want %v", base, got, want)
		}
	}
}

func TestOpenAIToolCalls(t *testing.T) {
	t.Parallel()
	long := `{"x":"` + strings.Repeat("é\\n", 500) + `"}`
	var many []string
	for _, r := range long { // one chunk for each character
		piece, _ := json.Marshal(string(r))
		many = append(many, openAICalls(fmt.Sprintf(`{"index":0,"function":{"arguments":%s}}`, piece)))
	}
	for name, tc := range map[string]struct {
		chunks []string
		want   []ToolCall
	}{
		"many chunks": {
			append(append([]string{openAICalls(`{"index":0,"id":"c1","type":"function","function":{"name":"a__b","arguments":""}}`)}, many...), openAITools),
			[]ToolCall{{"c1", "a__b", json.RawMessage(long)}},
		},
		"interleaved": {
			[]string{
				openAICalls(`{"index":0,"id":"c1","function":{"name":"a"}},{"index":1,"id":"c2","function":{"name":"b"}}`),
				openAICalls(`{"index":1,"function":{"arguments":"{\"y\":"}},{"index":0,"function":{"arguments":"{\"x\":"}}`),
				openAICalls(`{"index":0,"function":{"arguments":"1}"}},{"index":1,"function":{"arguments":"2}"}}`),
				openAITools,
			},
			[]ToolCall{{"c1", "a", json.RawMessage(`{"x":1}`)}, {"c2", "b", json.RawMessage(`{"y":2}`)}},
		},
		"every call at index 0": {
			[]string{
				openAICalls(`{"index":0,"id":"c1","function":{"name":"a","arguments":"{}"}}`),
				openAICalls(`{"index":0,"id":"c2","function":{"name":"a","arguments":"{}"}}`),
				openAITools,
			},
			[]ToolCall{{"c1", "a", json.RawMessage(`{}`)}, {"c2", "a", json.RawMessage(`{}`)}},
		},
		"no index, id and name repeated": {
			[]string{
				openAICalls(`{"id":"c1","function":{"name":"a","arguments":"{"}}`),
				openAICalls(`{"id":"c1","function":{"name":"a","arguments":"}"}}`),
				openAITools,
			},
			[]ToolCall{{"c1", "a", json.RawMessage(`{}`)}},
		},
		"no arguments, and a plain stop": {
			[]string{openAICalls(`{"index":0,"id":"c1","function":{"name":"a"}}`), openAIStop},
			[]ToolCall{{"c1", "a", json.RawMessage(`{}`)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serve(t, OpenAI, Limits{}, sse(tc.chunks...))
			a, _ := complete(t, p, hello())
			if diff := cmp.Diff(Answer{ToolCalls: tc.want, StopReason: StopToolCalls}, a); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOpenAIBrokenStreams(t *testing.T) {
	t.Parallel()
	call := func(id, name, args string) string {
		raw, _ := json.Marshal(args)
		return openAICalls(fmt.Sprintf(`{"index":0,"id":%q,"function":{"name":%q,"arguments":%s}}`, id, name, raw))
	}
	for name, tc := range map[string]struct {
		chunks    []string
		code      problem.Code
		retryable bool
	}{
		"nothing":                      {nil, problem.Upstream, true},
		"clean end after text":         {[]string{openAIText("Hel")}, problem.Upstream, true},
		"clean end inside arguments":   {[]string{call("c1", "a", `{"a"`)}, problem.Upstream, true},
		"done without a finish":        {[]string{openAIText("Hel"), "[DONE]"}, problem.Upstream, true},
		"garbage":                      {[]string{"<html>"}, problem.Upstream, true},
		"another type":                 {[]string{`{"choices":"x"}`}, problem.Upstream, true},
		"text after the finish":        {[]string{openAIStop, openAIText("more")}, problem.Upstream, true},
		"call after the finish":        {[]string{openAIStop, call("c1", "a", `{}`)}, problem.Upstream, true},
		"unknown finish":               {[]string{`{"choices":[{"delta":{},"finish_reason":"tired"}]}`}, problem.Upstream, false},
		"finish for calls, no call":    {[]string{openAITools}, problem.Upstream, true},
		"finish of another choice":     {[]string{`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`}, problem.Upstream, true},
		"no id":                        {[]string{call("", "a", `{}`), openAITools}, problem.Upstream, true},
		"an endless id":                {[]string{call(strings.Repeat("c", 300), "a", `{}`), openAITools}, problem.Upstream, true},
		"no name":                      {[]string{call("c1", "", `{}`), openAITools}, problem.Upstream, true},
		"a name that is no name":       {[]string{call("c1", "a.b/../c", `{}`), openAITools}, problem.Upstream, true},
		"the name changes":             {[]string{call("c1", "a", `{`), call("c1", "b", `}`), openAITools}, problem.Upstream, true},
		"one id at two indexes":        {[]string{openAICalls(`{"index":0,"id":"c1","function":{"name":"a"}},{"index":1,"id":"c1","function":{"name":"a"}}`), openAITools}, problem.Upstream, true},
		"arguments: array":             {[]string{call("c1", "a", `[]`), openAITools}, problem.Upstream, true},
		"arguments: null":              {[]string{call("c1", "a", `null`), openAITools}, problem.Upstream, true},
		"arguments: two objects":       {[]string{call("c1", "a", `{}{}`), openAITools}, problem.Upstream, true},
		"arguments: a name twice":      {[]string{call("c1", "a", `{"a":[{"b":1}],"c":{"d":1,"\u0064":2}}`), openAITools}, problem.Upstream, true},
		"arguments cut by the limit":   {[]string{call("c1", "a", `{"a":`), `{"choices":[{"delta":{},"finish_reason":"length"}]}`}, problem.Upstream, false},
		"overloaded in the stream":     {[]string{openAIText("x"), `{"error":{"type":"service_unavailable","message":"later"}}`}, problem.Unavailable, true},
		"rate limit in the stream":     {[]string{`{"error":{"type":"rate_limit_exceeded"}}`}, problem.Busy, true},
		"fault in the stream":          {[]string{`{"error":{"type":"server_error"}}`}, problem.Upstream, true},
		"refused in the stream":        {[]string{`{"error":{"type":"invalid_request_error","code":"x"}}`}, problem.Upstream, false},
		"deeper than any parser reads": {[]string{strings.Repeat("[", 20000)}, problem.Upstream, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serve(t, OpenAI, Limits{}, sse(tc.chunks...))
			a, err := p.Complete(t.Context(), hello(), nil)
			wantFailure(t, err, tc.code, tc.retryable)
			if diff := cmp.Diff(Answer{}, a); diff != "" {
				t.Errorf("a failed answer says something: %s", diff)
			}
		})
	}
}

func TestOpenAIStops(t *testing.T) {
	t.Parallel()
	for finish, want := range map[string]StopReason{
		openAIStop: StopEnd,
		`{"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}`:         StopLength,
		`{"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}`: StopRefused,
		`{"choices":[{"delta":{"refusal":"I will not"},"finish_reason":"stop"}]}`:  StopRefused,
	} {
		p, _ := serve(t, OpenAI, Limits{}, sse(finish, `{"usage":{"prompt_tokens":-5,"completion_tokens":1}}`))
		a, _ := complete(t, p, hello())
		if a.StopReason != want || a.Usage.Reported {
			t.Errorf("%s: %+v", finish, a)
		}
	}
}

func TestOpenAINotAStream(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"application/json", "text/html; charset=utf-8", ""} {
		p, _ := serve(t, OpenAI, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`))
		})
		_, err := p.Complete(t.Context(), hello(), nil)
		wantFailure(t, err, problem.Upstream, false)
	}
}
