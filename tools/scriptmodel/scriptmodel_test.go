package scriptmodel

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const twoTurns = `
model: scripted-test
turns:
  - text: Let me look at {{find "issue (\\d+)" .Prompt}}.
    calls:
      - tool: github__issue_read
        args: {title: '{{find "title: (.*)" .Prompt}}'}
        values: {issue_number: '{{find "issue (\\d+)" .Prompt}}', quoted: '{{quote .Prompt}}'}
      - tool: tickets__find_owner
  - text: The owner is {{.Result "tickets__find_owner"}}.
`

func serve(t *testing.T, script string) string {
	t.Helper()
	s, err := Load([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(New(s))
	t.Cleanup(srv.Close)
	return srv.URL
}

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	if resp.Header.Get("Scripted-Model") == "" {
		t.Error("the answer does not say that it is scripted")
	}
	return resp
}

// events gives the data of every event, and how the stream ended.
func events(t *testing.T, resp *http.Response) ([]string, error) {
	t.Helper()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, body)
	}
	var out []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			out = append(out, data)
		}
	}
	return out, lines.Err()
}

// chat puts the chunks of a Chat Completions stream together.
func chat(t *testing.T, resp *http.Response) (text, args, finish string) {
	t.Helper()
	datas, err := events(t, resp)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range datas {
		var a chatAnswer
		if data == "[DONE]" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatal(err)
		}
		if a.SystemFingerprint != "fp_scripted" {
			t.Errorf("fingerprint %q", a.SystemFingerprint)
		}
		for _, c := range a.Choices {
			text += c.Delta.Content
			for _, call := range c.Delta.ToolCalls {
				if *call.Index == 0 {
					args += call.Function.Arguments
				}
			}
			if c.FinishReason != nil {
				finish = *c.FinishReason
			}
		}
	}
	return text, args, finish
}

const chatFirst = `{"model":"scripted-test","stream":true,"messages":[
	{"role":"system","content":"be nice"},
	{"role":"user","content":"issue 7 title: \"é\" </script>"}]}`

const chatSecond = `{"model":"scripted-test","stream":true,"messages":[
	{"role":"user","content":[{"type":"text","text":"issue 7"}]},
	{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"tickets__find_owner","arguments":"{}"}}]},
	{"role":"tool","tool_call_id":"c1","content":"team docs"}]}`

func TestChatCompletionsStream(t *testing.T) {
	t.Parallel()
	url := serve(t, twoTurns) + "/v1/chat/completions"
	text, args, finish := chat(t, post(t, url, chatFirst))
	if text != "Let me look at 7." || finish != "tool_calls" {
		t.Errorf("text %q, finish %q", text, finish)
	}
	var got struct {
		Title       string `json:"title"`
		IssueNumber int    `json:"issue_number"`
		Quoted      string `json:"quoted"`
	}
	if err := json.Unmarshal([]byte(args), &got); err != nil || got.IssueNumber != 7 || got.Title != `"é" </script>` || !strings.HasPrefix(got.Quoted, "issue 7") {
		t.Errorf("arguments %s: %v", args, err)
	}
	if text, _, finish := chat(t, post(t, url, chatSecond)); text != "The owner is team docs." || finish != "stop" {
		t.Errorf("text %q, finish %q", text, finish)
	}
}

// A request that is asked again gets the same bytes: nothing depends on what was asked before.
func TestAnswersAreRepeatable(t *testing.T) {
	t.Parallel()
	url := serve(t, twoTurns) + "/v1/chat/completions"
	read := func(body string) string {
		raw, err := io.ReadAll(post(t, url, body).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	first := read(chatFirst)
	read(chatSecond)
	if again := read(chatFirst); again != first {
		t.Errorf("first %s\nagain %s", first, again)
	}
}

func TestChatCompletionsWhole(t *testing.T) {
	t.Parallel()
	resp := post(t, serve(t, twoTurns)+"/v1/chat/completions", strings.Replace(chatFirst, `"stream":true,`, "", 1))
	var a chatAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if m := a.Choices[0].Message; len(m.ToolCalls) != 2 || m.ToolCalls[1].Function.Arguments != "{}" || m.ToolCalls[0].ID == m.ToolCalls[1].ID || a.Usage.TotalTokens == 0 {
		t.Errorf("answer %+v", a)
	}
}

func TestMessagesStream(t *testing.T) {
	t.Parallel()
	url := serve(t, twoTurns) + "/v1/messages"
	datas, err := events(t, post(t, url, `{"model":"scripted-test","max_tokens":9,"stream":true,"messages":[
		{"role":"user","content":"issue 7"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"tool_use","id":"c1","name":"tickets__find_owner","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"team docs"}]},{"type":"text","text":"go on"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(datas, "\n")
	for _, want := range []string{`"message_start"`, `"text":"The owner is"`, `"stop_reason":"end_turn"`, `{"type":"message_stop"}`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	base := serve(t, twoTurns)
	for name, tc := range map[string]struct {
		path, body string
		status     int
	}{
		"not JSON":            {"/v1/chat/completions", `{`, 400},
		"a real model":        {"/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user","content":"x"}]}`, 404},
		"no result":           {"/v1/chat/completions", strings.Replace(chatSecond, `"role":"tool","tool_call_id":"c1",`, `"role":"user",`, 1), 400},
		"result of nothing":   {"/v1/chat/completions", strings.Replace(chatSecond, `"tool_call_id":"c1"`, `"tool_call_id":"c9"`, 1), 400},
		"unknown role":        {"/v1/chat/completions", `{"model":"scripted-test","messages":[{"role":"robot","content":"x"}]}`, 400},
		"nothing to find":     {"/v1/chat/completions", `{"model":"scripted-test","messages":[{"role":"user","content":"x"}]}`, 400},
		"beyond the script":   {"/v1/chat/completions", `{"model":"scripted-test","messages":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]}`, 400},
		"no limit":            {"/v1/messages", `{"model":"scripted-test","stream":true,"messages":[]}`, 400},
		"not a stream":        {"/v1/messages", `{"model":"scripted-test","max_tokens":1,"messages":[]}`, 400},
		"text before results": {"/v1/messages", `{"model":"scripted-test","stream":true,"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t"}]},{"role":"user","content":"x"}]}`, 400},
	} {
		resp := post(t, base+tc.path, tc.body)
		var body struct {
			Error struct{ Message string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != tc.status || body.Error.Message == "" {
			t.Errorf("%s: %s, %+v, %v", name, resp.Status, body, err)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	turn := "model: scripted-test\nturns:\n  - text: a text of some length\n    fault: "
	ask := func(prompt string) string {
		return `{"model":"scripted-test","stream":true,"messages":[{"role":"user","content":"` + prompt + `"}]}`
	}

	t.Run("twice, then answer", func(t *testing.T) {
		url := serve(t, turn+`{status: 429, retryAfter: "3", times: 2}`) + "/v1/chat/completions"
		for _, want := range []int{429, 429, 200, 200} {
			resp := post(t, url, ask("one"))
			if resp.StatusCode != want || (want == 429 && resp.Header.Get("Retry-After") != "3") {
				t.Errorf("%s, want %d; %v", resp.Status, want, resp.Header)
			}
		}
		if resp := post(t, url, ask("another run")); resp.StatusCode != 429 {
			t.Errorf("another conversation has faults of its own: %s", resp.Status)
		}
	})
	t.Run("a clean cut", func(t *testing.T) {
		datas, err := events(t, post(t, serve(t, turn+`{cutAfter: 2}`)+"/v1/chat/completions", ask("one")))
		if len(datas) != 2 || err != nil {
			t.Errorf("%d events, %v", len(datas), err)
		}
	})
	t.Run("a broken connection", func(t *testing.T) {
		datas, err := events(t, post(t, serve(t, turn+`{cutAfter: 2, abort: true}`)+"/v1/chat/completions", ask("one")))
		if len(datas) != 2 || err == nil {
			t.Errorf("%d events, %v", len(datas), err)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"not YAML":            "model: [",
		"an unknown field":    "model: scripted-x\nturns: [{text: a, tool: b}]",
		"a real model's name": "model: gpt-5\nturns: [{text: a}]",
		"no turns":            "model: scripted-x",
		"a dotted tool":       "model: scripted-x\nturns: [{calls: [{tool: a.b}]}]",
		"a broken template":   "model: scripted-x\nturns: [{text: '{{.Prompt'}]",
		"an unknown function": "model: scripted-x\nturns: [{text: '{{env \"HOME\"}}'}]",
		"one name twice":      "model: scripted-x\nturns: [{calls: [{tool: a, args: {x: a}, values: {x: '1'}}]}]",
		"an empty fault":      "model: scripted-x\nturns: [{text: a, fault: {times: 1}}]",
	} {
		if s, err := Load([]byte(script)); err == nil {
			t.Errorf("%s: loaded %+v", name, s)
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, serve(t, twoTurns)+"/v1/models", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(raw), `"id":"scripted-test"`) || !strings.Contains(string(raw), `"owned_by":"scripted"`) {
		t.Errorf("models: %s", raw)
	}
}
