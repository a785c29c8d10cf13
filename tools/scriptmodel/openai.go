package scriptmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// chatCompletions is the protocol of OpenAI's Chat Completions.
type chatCompletions struct{}

const fingerprint = "fp_scripted"

type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role       string      `json:"role"`
	Content    chatContent `json:"content"`
	ToolCalls  []chatCall  `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

// chatContent is a text, null, or a list of parts, of which the texts count.
type chatContent string

func (c *chatContent) UnmarshalJSON(raw []byte) error {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text != nil {
			*c = chatContent(*text)
		}
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*c += chatContent(p.Text)
	}
	return nil
}

type chatCall struct {
	Index    *int         `json:"index,omitempty"` // only in a stream
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func (chatCompletions) read(body []byte) (request, error) {
	var r chatRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return request{}, fmt.Errorf("not a chat completion request: %w", err)
	}
	talk := newConversation()
	for _, m := range r.Messages {
		if err := m.fold(talk); err != nil {
			return request{}, err
		}
	}
	return request{model: r.Model, stream: r.Stream, usage: r.StreamOptions.IncludeUsage, talk: talk}, talk.settled()
}

func (m chatMessage) fold(talk *conversation) error {
	if m.Role == "tool" {
		return talk.result(m.ToolCallID, string(m.Content))
	}
	if err := talk.settled(); err != nil {
		return err
	}
	switch m.Role {
	case "user":
		talk.user(string(m.Content))
	case "assistant":
		talk.turns++
		for _, c := range m.ToolCalls {
			if err := talk.call(c.ID, c.Function.Name); err != nil {
				return err
			}
		}
	case "system", "developer":
	default:
		return fmt.Errorf("unknown role %q", m.Role)
	}
	return nil
}

func (chatCompletions) refuse(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_exceeded"
	case status >= 500:
		kind = "server_error"
	}
	type fault struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Code    *string `json:"code"`
	}
	writeJSON(w, status, struct {
		Error fault `json:"error"`
	}{fault{Message: message, Type: kind}})
}

type chatAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"` // the epoch: equal requests get equal bytes
	Model             string       `json:"model"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Choices           []chatChoice `json:"choices"`
	Usage             *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int        `json:"index"`
	Message      *chatDelta `json:"message,omitempty"`
	Delta        *chatDelta `json:"delta,omitempty"`
	FinishReason *string    `json:"finish_reason"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

type chatUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (p chatCompletions) write(w http.ResponseWriter, r request, a answer) {
	out := chatAnswer{ID: fmt.Sprintf("chatcmpl-scripted-%d", a.turn), Model: r.model, SystemFingerprint: fingerprint}
	usage := &chatUsage{r.tokens, a.tokens(), r.tokens + a.tokens()}
	finish := "stop"
	if len(a.calls) > 0 {
		finish = "tool_calls"
	}
	if !r.stream {
		message := &chatDelta{Role: "assistant", Content: a.text}
		for _, c := range a.calls {
			message.ToolCalls = append(message.ToolCalls, chatCall{nil, c.id, "function", chatFunction{c.tool, c.args}})
		}
		out.Object, out.Usage = "chat.completion", usage
		out.Choices = []chatChoice{{Message: message, FinishReason: &finish}}
		writeJSON(w, http.StatusOK, out)
		return
	}

	s := newStream(w, a.cut)
	out.Object = "chat.completion.chunk"
	send := func(d chatDelta, finish *string) {
		out.Choices = []chatChoice{{Delta: &d, FinishReason: finish}}
		s.send("", out)
	}
	send(chatDelta{Role: "assistant"}, nil)
	for _, piece := range pieces(a.text) {
		send(chatDelta{Content: piece}, nil)
	}
	for i, c := range a.calls {
		send(chatDelta{ToolCalls: []chatCall{{&i, c.id, "function", chatFunction{Name: c.tool}}}}, nil)
		for _, piece := range pieces(c.args) {
			send(chatDelta{ToolCalls: []chatCall{{Index: &i, Function: chatFunction{Arguments: piece}}}}, nil)
		}
	}
	send(chatDelta{}, &finish)
	if r.usage {
		out.Choices, out.Usage = []chatChoice{}, usage
		s.send("", out)
	}
	s.sendRaw("", "[DONE]")
}
