package model

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The subset of Chat Completions that we send and read.

type openAIRequest struct {
	Model               string          `json:"model"`
	Messages            []openAIMessage `json:"messages"`
	Tools               []openAITool    `json:"tools,omitempty"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type openAIMessage struct {
	Role       string       `json:"role"`
	Content    string       `json:"content"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	ID       string             `json:"id"`
	Type     string             `json:"type"`
	Function openAICallFunction `json:"function"`
}

type openAICallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON inside a string
}

type openAITool struct {
	Type     string             `json:"type"`
	Function openAIToolFunction `json:"function"`
}

type openAIToolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type openAIChunk struct {
	Choices []openAIChoice `json:"choices"`
	Usage   *struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *refusal `json:"error"`
}

type openAIChoice struct {
	Index        int         `json:"index"`
	Delta        openAIDelta `json:"delta"`
	FinishReason string      `json:"finish_reason"`
}

type openAIDelta struct {
	Content   string            `json:"content"`
	Refusal   string            `json:"refusal"` // text that takes the content's place
	ToolCalls []openAICallDelta `json:"tool_calls"`
}

type openAICallDelta struct {
	Index    int                `json:"index"`
	ID       string             `json:"id"`
	Function openAICallFunction `json:"function"`
}

func (p *openAI) request(r Request) openAIRequest {
	w := openAIRequest{Model: r.Model, Stream: true}
	w.StreamOptions.IncludeUsage = true
	if p.native {
		w.MaxCompletionTokens = r.MaxOutputTokens
	} else {
		w.MaxTokens = r.MaxOutputTokens
	}
	system := r.System // and what has no room in a tool's description
	for _, t := range r.Tools {
		if t.More != "" {
			system = strings.TrimLeft(system+"\n\nAbout the tool "+t.Name+". "+t.More, "\n")
		}
	}
	if system != "" {
		w.Messages = append(w.Messages, openAIMessage{Role: "system", Content: system})
	}
	for _, m := range r.Messages {
		w.Messages = append(w.Messages, openAIMessages(m)...)
	}
	for _, t := range r.Tools {
		w.Tools = append(w.Tools, openAITool{"function", openAIToolFunction{t.Name, shortened(t.Description), t.Schema}})
	}
	return w
}

// maxOpenAIDescription is how many characters OpenAI takes of a tool's description: for one that is longer it refuses the
// whole request (getsentry/sentry-mcp#106).
const maxOpenAIDescription = 1024

// shortened cuts a description to what is taken.
func shortened(description string) string {
	if utf8.RuneCountInString(description) <= maxOpenAIDescription {
		return description
	}
	return string([]rune(description)[:maxOpenAIDescription-1]) + "…"
}

// openAIMessages gives one message, or one for each result of a tool message.
func openAIMessages(m Message) []openAIMessage {
	if m.Role == RoleTool {
		var out []openAIMessage
		for _, res := range m.ToolResults {
			text := res.Text
			if res.IsError { // the protocol has no mark for it
				text = "Error: " + text
			}
			out = append(out, openAIMessage{Role: "tool", Content: text, ToolCallID: res.CallID})
		}
		return out
	}
	w := openAIMessage{Role: string(m.Role), Content: m.Text}
	for _, c := range m.ToolCalls {
		w.ToolCalls = append(w.ToolCalls, openAICall{c.ID, "function", openAICallFunction{c.Name, string(c.Args)}})
	}
	return []openAIMessage{w}
}
