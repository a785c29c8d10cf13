package sample

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []call `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// play asks the sample's model until it stops, answering its calls with results, and returns the whole conversation.
func play(t *testing.T, prompt string, results map[string]string) []message {
	t.Helper()
	model := NewModel(Script())
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	talk := []message{{Role: "user", Content: prompt}}
	for {
		body, err := json.Marshal(struct {
			Model    string    `json:"model"`
			Messages []message `json:"messages"`
		}{Script().Model, talk})
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, model.URL()+"/v1/chat/completions", strings.NewReader(string(body)))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Choices []struct{ Message message }
			Error   struct{ Message string }
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || len(answer.Choices) != 1 {
			t.Fatalf("%s: %v %+v", resp.Status, err, answer.Error)
		}
		talk = append(talk, answer.Choices[0].Message)
		calls := answer.Choices[0].Message.ToolCalls
		if len(calls) == 0 {
			return talk
		}
		for _, c := range calls {
			talk = append(talk, message{Role: "tool", ToolCallID: c.ID, Content: results[c.Function.Name]})
		}
	}
}

const prompt = `A new issue was opened. Triage it.

repository: Codertocat/Hello-World
issue: 1
title: Spelling error "); evil("
status page: http://127.0.0.1:8080/status.json`

func TestScriptTriages(t *testing.T) {
	t.Parallel()
	for name, results := range map[string]map[string]string{
		"plain": {
			"runtime__run_javascript":   `{"page":"p","component":"documentation","status":"operational"}`,
			"tickets__find_owner":       `{"component":"documentation","team":"docs","onCall":"Mika Lind"}`,
			"github__add_issue_comment": "created",
		},
		"indented, and JSON inside a string": {
			"runtime__run_javascript":   "{\n  \"value\": {\n    \"component\": \"documentation\",\n    \"status\": \"operational\"\n  }\n}",
			"tickets__find_owner":       `{"content":[{"type":"text","text":"{\"team\":\"docs\",\"onCall\":\"Mika Lind\"}"}]}`,
			"github__add_issue_comment": "created",
		},
	} {
		talk := play(t, prompt, results)
		if len(talk) != 8 {
			t.Fatalf("%s: %d messages", name, len(talk))
		}
		source := argument[struct{ Source string }](t, talk[1]).Source
		if !strings.Contains(source, `const title = "Spelling error \"); evil(\"";`) || !strings.Contains(source, `fetch("http://127.0.0.1:8080/status.json")`) {
			t.Errorf("%s: source %s", name, source)
		}
		if q := argument[struct{ Component string }](t, talk[3]); q.Component != "documentation" {
			t.Errorf("%s: %+v", name, q)
		}
		c := argument[struct {
			Owner, Repo, Body string
			IssueNumber       int `json:"issue_number"`
		}](t, talk[5])
		if c.Owner != "Codertocat" || c.Repo != "Hello-World" || c.IssueNumber != 1 {
			t.Errorf("%s: %+v", name, c)
		}
		if !strings.HasPrefix(c.Body, "Thank you") {
			t.Errorf("%s: the comment begins with %.20q", name, c.Body)
		}
		for _, want := range []string{"**documentation**", "operational", "docs team", "Mika Lind"} {
			if !strings.Contains(c.Body, want) {
				t.Errorf("%s: no %s in the comment %q", name, want, c.Body)
			}
		}
		if last := talk[7].Content; !strings.Contains(last, "Issue 1 of Codertocat/Hello-World") || !strings.HasSuffix(last, "created") {
			t.Errorf("%s: %q", name, last)
		}
	}
}

// Tools that are refused leave the model with less to say, and the run with an honest end.
func TestScriptEndsWithoutResults(t *testing.T) {
	t.Parallel()
	talk := play(t, prompt, map[string]string{"github__add_issue_comment": "denied by a person"})
	if last := talk[len(talk)-1].Content; !strings.HasSuffix(last, "denied by a person") {
		t.Errorf("%q", last)
	}
}

func argument[T any](t *testing.T, m message) T {
	t.Helper()
	var args T
	if len(m.ToolCalls) != 1 {
		t.Fatalf("%d calls", len(m.ToolCalls))
	}
	if err := json.Unmarshal([]byte(m.ToolCalls[0].Function.Arguments), &args); err != nil {
		t.Fatal(err)
	}
	return args
}
