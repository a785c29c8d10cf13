package model

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/google/go-cmp/cmp"
)

const (
	messageStart = `{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}}`
	messageEnd   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`
	messageTools = `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`
	messageStop  = `{"type":"message_stop"}`
	blockText    = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	blockStop    = `{"type":"content_block_stop","index":0}`
)

func textDelta(s string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, s)
}

func blockTool(index int, id, name, input string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":%s}}`, index, id, name, input)
}

func argsDelta(index int, s string) string {
	raw, _ := json.Marshal(s)
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, index, raw)
}

func TestAnthropicText(t *testing.T) {
	t.Parallel()
	p, saw := serve(t, Anthropic, Limits{}, sse(messageStart, `{"type":"ping"}`, `{"type":"from_the_future","delta":{"type":"x"}}`,
		blockText, textDelta("Hel"), textDelta("lo"), blockStop, messageEnd, messageStop, "ignored after the stop"))
	a, deltas := complete(t, p, hello())
	want := Answer{Text: "Hello", StopReason: StopEnd, Usage: Usage{15, 9, true}}
	if diff := cmp.Diff(want, a); diff != "" || deltas != "Hello" {
		t.Errorf("deltas %q, answer (-want +got):\n%s", deltas, diff)
	}
	if saw.Path != "/v1/messages" || saw.Header.Get("X-Api-Key") != "sk-canary" || saw.Header.Get("Anthropic-Version") == "" {
		t.Errorf("saw %s, %v", saw.Path, saw.Header)
	}
	wantJSON(t, saw.Body, `{"model":"m-1","max_tokens":100,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}`)
}

// The results and the prompt after them are one user message, and the signed thinking goes back as it came.
func TestAnthropicRequest(t *testing.T) {
	t.Parallel()
	p, saw := serve(t, Anthropic, Limits{}, sse(messageStart, messageEnd, messageStop))
	r := conversation()
	r.Messages[1].Raw = json.RawMessage(`[{"type":"thinking","thinking":"","signature":"s"}]`)
	complete(t, p, r)
	wantJSON(t, saw.Body, `{"model":"m-2","max_tokens":5,"stream":true,"system":"be brief",
		"tools":[{"name":"a__b","description":"does b\nmore of b","input_schema":{"type":"object"}}],
		"messages":[
			{"role":"user","content":[{"type":"text","text":"go"}]},
			{"role":"assistant","content":[
				{"type":"thinking","thinking":"","signature":"s"},
				{"type":"tool_use","id":"c1","name":"a__b","input":{"x":1}},
				{"type":"tool_use","id":"c2","name":"a__b","input":{}}]},
			{"role":"user","content":[
				{"type":"tool_result","tool_use_id":"c2","content":"no","is_error":true},
				{"type":"tool_result","tool_use_id":"c1","content":"yes"},
				{"type":"text","text":"and?"}]}]}`)
}

func TestAnthropicThinkingIsKept(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, Anthropic, Limits{}, sse(messageStart,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
		blockStop,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}`,
		`{"type":"content_block_stop","index":1}`,
		blockText, textDelta("ok"), blockStop, messageEnd, messageStop))
	a, deltas := complete(t, p, hello())
	wantJSON(t, string(a.Raw), `[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xyz"}]`)
	if a.Text != "ok" || deltas != "ok" {
		t.Errorf("thinking leaks into the text: %q", deltas)
	}
}

func TestAnthropicToolCalls(t *testing.T) {
	t.Parallel()
	args := `{"x":"` + strings.Repeat("é", 300) + `"}`
	pieces := []string{messageStart, blockTool(0, "c1", "a__b", `{}`), blockTool(1, "c2", "a__b", `{}`), blockTool(2, "c3", "a__b", `{"whole":true}`)}
	for _, r := range args {
		pieces = append(pieces, argsDelta(0, string(r)), argsDelta(1, ""))
	}
	for i := range 3 {
		pieces = append(pieces, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
	}
	p, _ := serve(t, Anthropic, Limits{}, sse(append(pieces, messageTools, messageStop)...))
	a, _ := complete(t, p, hello())
	want := []ToolCall{
		{"c1", "a__b", json.RawMessage(args)},
		{"c2", "a__b", json.RawMessage(`{}`)},
		{"c3", "a__b", json.RawMessage(`{"whole":true}`)},
	}
	if diff := cmp.Diff(want, a.ToolCalls); diff != "" || a.StopReason != StopToolCalls {
		t.Errorf("stop %s, calls (-want +got):\n%s", a.StopReason, diff)
	}
}

func TestAnthropicBrokenStreams(t *testing.T) {
	t.Parallel()
	tool := blockTool(0, "c1", "a", `{}`)
	for name, tc := range map[string]struct {
		events    []string
		code      problem.Code
		retryable bool
	}{
		"nothing":                        {nil, problem.Upstream, true},
		"clean end after text":           {[]string{messageStart, blockText, textDelta("x"), blockStop}, problem.Upstream, true},
		"clean end before message_stop":  {[]string{messageStart, blockText, blockStop, messageEnd}, problem.Upstream, true},
		"message_stop without a reason":  {[]string{messageStart, messageStop}, problem.Upstream, true},
		"message_stop inside a block":    {[]string{messageStart, tool, argsDelta(0, `{}`), messageTools, messageStop}, problem.Upstream, true},
		"garbage":                        {[]string{"}"}, problem.Upstream, true},
		"unknown reason":                 {[]string{`{"type":"message_delta","delta":{"stop_reason":"bored"}}`}, problem.Upstream, false},
		"a block opened twice":           {[]string{tool, tool}, problem.Upstream, true},
		"a delta without a block":        {[]string{argsDelta(3, `{}`)}, problem.Upstream, true},
		"a delta after its block":        {[]string{tool, blockStop, argsDelta(0, `{}`)}, problem.Upstream, true},
		"a stop without a block":         {[]string{blockStop}, problem.Upstream, true},
		"text inside a tool call":        {[]string{tool, textDelta("x")}, problem.Upstream, true},
		"arguments inside text":          {[]string{blockText, argsDelta(0, `{}`)}, problem.Upstream, true},
		"arguments that are no object":   {[]string{tool, argsDelta(0, `"x"`), blockStop, messageTools, messageStop}, problem.Upstream, true},
		"an input that is no object":     {[]string{blockTool(0, "c1", "a", `[1]`), blockStop, messageTools, messageStop}, problem.Upstream, true},
		"one id twice":                   {[]string{tool, blockStop, tool, blockStop, messageTools, messageStop}, problem.Upstream, true},
		"overloaded in the stream":       {[]string{messageStart, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, problem.Unavailable, true},
		"rate limit in the stream":       {[]string{`{"type":"error","error":{"type":"rate_limit_error"}}`}, problem.Busy, true},
		"fault in the stream":            {[]string{`{"type":"error","error":{"type":"api_error"}}`}, problem.Upstream, true},
		"a refused key in the stream":    {[]string{`{"type":"error","error":{"type":"authentication_error","message":"sk-canary"}}`}, problem.Upstream, false},
		"an error that is no error":      {[]string{`{"type":"error","error":[1]}`}, problem.Upstream, true},
		"a tool call that was cut short": {[]string{tool, argsDelta(0, `{"a`), blockStop, `{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, messageStop}, problem.Upstream, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serve(t, Anthropic, Limits{}, sse(tc.events...))
			a, err := p.Complete(t.Context(), hello(), nil)
			wantFailure(t, err, tc.code, tc.retryable)
			if diff := cmp.Diff(Answer{}, a); diff != "" {
				t.Errorf("a failed answer says something: %s", diff)
			}
		})
	}
}

func TestAnthropicUsageThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{`{}`, `{"input_tokens":5}`, `{"input_tokens":-1}`, `{"input_tokens":5,"cache_read_input_tokens":-5}`, `{"input_tokens":9223372036854775807,"cache_read_input_tokens":1}`} {
		p, _ := serve(t, Anthropic, Limits{}, sse(`{"type":"message_start","message":{"usage":`+usage+`}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":-2}}`, messageStop))
		if a, _ := complete(t, p, hello()); a.Usage.Reported {
			t.Errorf("%s: %+v", usage, a.Usage)
		}
	}
}
