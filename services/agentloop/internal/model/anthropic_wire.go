package model

import "encoding/json"

// The subset of Messages that we send and read.

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens int                `json:"max_tokens"`
	System    string             `json:"system,omitempty"`
	Messages  []anthropicMessage `json:"messages"`
	Tools     []anthropicTool    `json:"tools,omitempty"`
	Stream    bool               `json:"stream"`
}

type anthropicMessage struct {
	Role    string            `json:"role"`
	Content []json.RawMessage `json:"content"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type anthropicText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type anthropicToolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type anthropicToolResult struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   string `json:"content"`
	IsError   bool   `json:"is_error,omitempty"`
}

type anthropicThinking struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type anthropicRedacted struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

type anthropicEvent struct {
	Type    string `json:"type"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	Index        int              `json:"index"`
	ContentBlock anthropicContent `json:"content_block"`
	Delta        anthropicDelta   `json:"delta"`
	Usage        anthropicUsage   `json:"usage"`
	Error        refusal          `json:"error"`
}

type anthropicContent struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
}

type anthropicDelta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	PartialJSON string `json:"partial_json"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	StopReason  string `json:"stop_reason"`
}

// anthropicUsage comes in pieces: the input with the first event, the output with the last, each cumulative.
type anthropicUsage struct {
	InputTokens   *int64 `json:"input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	OutputTokens  *int64 `json:"output_tokens"`
}

func (u *anthropicUsage) merge(later anthropicUsage) {
	for _, f := range []struct{ to, from **int64 }{
		{&u.InputTokens, &later.InputTokens},
		{&u.CacheCreation, &later.CacheCreation},
		{&u.CacheRead, &later.CacheRead},
		{&u.OutputTokens, &later.OutputTokens},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

// total gives -1 for what was not reported. The input counts cached tokens too: input_tokens leaves them out, and they
// are billed.
func (u *anthropicUsage) total() (input, output int64) {
	if u.InputTokens == nil || u.OutputTokens == nil {
		return -1, -1
	}
	input = *u.InputTokens
	for _, cached := range []*int64{u.CacheCreation, u.CacheRead} {
		if cached == nil {
			continue
		}
		if *cached < 0 {
			return -1, -1
		}
		input += *cached
	}
	return input, *u.OutputTokens
}

func anthropicRequestOf(r Request) anthropicRequest {
	w := anthropicRequest{Model: r.Model, MaxTokens: r.MaxOutputTokens, System: r.System, Stream: true}
	for _, m := range r.Messages {
		role, blocks := "user", anthropicBlocks(m)
		if m.Role == RoleAssistant {
			role = "assistant"
		}
		if len(blocks) == 0 {
			continue // an empty answer: the protocol has no way to repeat it
		}
		// Roles alternate on the wire, so results and a following prompt are one message.
		if last := len(w.Messages) - 1; last >= 0 && w.Messages[last].Role == role {
			w.Messages[last].Content = append(w.Messages[last].Content, blocks...)
			continue
		}
		w.Messages = append(w.Messages, anthropicMessage{role, blocks})
	}
	for _, t := range r.Tools {
		if t.More != "" {
			t.Description += "\n" + t.More
		}
		w.Tools = append(w.Tools, anthropicTool{t.Name, t.Description, t.Schema})
	}
	return w
}

func anthropicBlocks(m Message) []json.RawMessage {
	var blocks []json.RawMessage
	_ = json.Unmarshal(m.Raw, &blocks) // checked before; empty is an error and means none
	if m.Text != "" {
		blocks = append(blocks, block(anthropicText{"text", m.Text}))
	}
	for _, c := range m.ToolCalls {
		blocks = append(blocks, block(anthropicToolUse{"tool_use", c.ID, c.Name, c.Args}))
	}
	for _, res := range m.ToolResults {
		blocks = append(blocks, block(anthropicToolResult{"tool_result", res.CallID, res.Text, res.IsError}))
	}
	return blocks
}

// block cannot fail: its types are strings, and JSON that was checked before.
func block(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
