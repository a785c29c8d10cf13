package scriptmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// messages is the protocol of Anthropic's Messages, streaming only.
type messages struct{}

type messagesRequest struct {
	Model     string `json:"model"`
	MaxTokens int    `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Messages  []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
}

// content is a list of blocks, or a text in the place of one text block.
type content []contentBlock

func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*[]contentBlock)(c))
}

type contentBlock struct {
	Type      string  `json:"type"`
	Text      string  `json:"text"`
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	ToolUseID string  `json:"tool_use_id"`
	Content   content `json:"content"`
}

func (c content) text() string {
	var out strings.Builder
	for _, b := range c {
		out.WriteString(b.Text)
	}
	return out.String()
}

func (messages) read(body []byte) (request, error) {
	var r messagesRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return request{}, fmt.Errorf("not a messages request: %w", err)
	}
	if r.MaxTokens <= 0 {
		return request{}, errors.New("max_tokens: field required")
	}
	if !r.Stream {
		return request{}, errors.New("the scripted model answers Messages only as a stream")
	}
	talk := newConversation()
	for _, m := range r.Messages {
		if err := foldMessage(talk, m.Role, m.Content); err != nil {
			return request{}, err
		}
	}
	return request{model: r.Model, stream: true, talk: talk}, talk.settled()
}

func foldMessage(talk *conversation, role string, blocks content) error {
	switch role {
	case "assistant":
		if err := talk.settled(); err != nil {
			return err
		}
		talk.turns++
	case "user":
	default:
		return fmt.Errorf("unknown role %q", role)
	}
	for _, b := range blocks {
		var err error
		switch {
		case b.Type == "tool_use" && role == "assistant":
			err = talk.call(b.ID, b.Name)
		case b.Type == "tool_result" && role == "user":
			err = talk.result(b.ToolUseID, b.Content.text())
		case b.Type == "text" && role == "user":
			if err = talk.settled(); err == nil { // results come before text
				talk.user(b.Text)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (messages) refuse(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusNotFound:
		kind = "not_found_error"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status == http.StatusServiceUnavailable, status == 529:
		kind = "overloaded_error"
	case status >= 500:
		kind = "api_error"
	}
	type fault struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	writeJSON(w, status, struct {
		Type  string `json:"type"`
		Error fault  `json:"error"`
	}{"error", fault{kind, message}})
}

// Events of the stream. Each kind has its own required fields, hence its own type.
type (
	messagesStart struct {
		Type    string       `json:"type"`
		Message startMessage `json:"message"`
	}
	startMessage struct {
		ID         string        `json:"id"`
		Type       string        `json:"type"`
		Role       string        `json:"role"`
		Model      string        `json:"model"`
		Content    []string      `json:"content"` // always empty here
		StopReason *string       `json:"stop_reason"`
		Usage      messagesUsage `json:"usage"`
	}
	messagesUsage struct {
		InputTokens  int `json:"input_tokens,omitempty"`
		OutputTokens int `json:"output_tokens"`
	}
	blockStart[T any] struct {
		Type         string `json:"type"`
		Index        int    `json:"index"`
		ContentBlock T      `json:"content_block"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	toolBlock struct {
		Type  string   `json:"type"`
		ID    string   `json:"id"`
		Name  string   `json:"name"`
		Input struct{} `json:"input"`
	}
	blockDelta[T any] struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta T      `json:"delta"`
	}
	argsDelta struct {
		Type        string `json:"type"`
		PartialJSON string `json:"partial_json"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messagesDelta struct {
		Type  string        `json:"type"`
		Delta stopDelta     `json:"delta"`
		Usage messagesUsage `json:"usage"`
	}
	stopDelta struct {
		StopReason string `json:"stop_reason"`
	}
	messagesStop struct {
		Type string `json:"type"`
	}
)

func (messages) write(w http.ResponseWriter, r request, a answer) {
	s := newStream(w, a.cut)
	s.send("message_start", messagesStart{"message_start", startMessage{
		ID: fmt.Sprintf("msg_scripted_%d", a.turn), Type: "message", Role: "assistant", Model: r.model, Content: []string{},
		Usage: messagesUsage{InputTokens: r.tokens, OutputTokens: 1},
	}})
	index := 0
	if a.text != "" {
		s.send("content_block_start", blockStart[textBlock]{"content_block_start", index, textBlock{Type: "text"}})
		for _, piece := range pieces(a.text) {
			s.send("content_block_delta", blockDelta[textBlock]{"content_block_delta", index, textBlock{"text_delta", piece}})
		}
		s.send("content_block_stop", blockStop{"content_block_stop", index})
		index++
	}
	stop := "end_turn"
	for _, c := range a.calls {
		stop = "tool_use"
		s.send("content_block_start", blockStart[toolBlock]{"content_block_start", index, toolBlock{Type: "tool_use", ID: c.id, Name: c.tool}})
		for _, piece := range pieces(c.args) {
			s.send("content_block_delta", blockDelta[argsDelta]{"content_block_delta", index, argsDelta{"input_json_delta", piece}})
		}
		s.send("content_block_stop", blockStop{"content_block_stop", index})
		index++
	}
	s.send("message_delta", messagesDelta{"message_delta", stopDelta{stop}, messagesUsage{OutputTokens: a.tokens()}})
	s.send("message_stop", messagesStop{"message_stop"})
}
