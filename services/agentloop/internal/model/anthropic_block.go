package model

import (
	"encoding/json"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// Content blocks stream as start, deltas, stop, each with the block's index.

func (s *anthropicStream) startBlock(index int, c anthropicContent) error {
	if s.open[index] != nil {
		return broken("the model provider opened one block twice")
	}
	b := &anthropicBlock{}
	var err error
	switch c.Type {
	case "text":
		b.text = true
		err = s.draft.addText(c.Text)
	case "tool_use":
		b.input = c.Input
		b.call, err = s.draft.addCall(c.ID, c.Name)
	case "thinking", "redacted_thinking":
		b.thinking = &thinking{redacted: c.Data}
		b.thinking.text.WriteString(c.Thinking)
		b.thinking.signature.WriteString(c.Signature)
		err = s.addRaw(len(c.Thinking) + len(c.Signature) + len(c.Data))
	}
	s.open[index] = b
	return err
}

func (s *anthropicStream) delta(index int, d anthropicDelta) error {
	b := s.open[index]
	if b == nil {
		return broken("the model provider continued a block that is not open")
	}
	switch {
	case d.Type == "text_delta" && b.text:
		return s.draft.addText(d.Text)
	case d.Type == "input_json_delta" && b.call != nil:
		return s.draft.addArgs(b.call, d.PartialJSON)
	case d.Type == "thinking_delta" && b.thinking != nil:
		b.thinking.text.WriteString(d.Thinking)
		return s.addRaw(len(d.Thinking))
	case d.Type == "signature_delta" && b.thinking != nil:
		b.thinking.signature.WriteString(d.Signature)
		return s.addRaw(len(d.Signature))
	case d.Type == "text_delta", d.Type == "input_json_delta":
		return broken("the model provider mixed the kinds of one block")
	}
	return nil // kinds of delta that are to come
}

func (s *anthropicStream) stopBlock(index int) error {
	b := s.open[index]
	if b == nil {
		return broken("the model provider closed a block that is not open")
	}
	delete(s.open, index)
	if b.call != nil && b.call.args.Len() == 0 {
		return s.draft.addArgs(b.call, string(b.input))
	}
	if b.thinking != nil {
		s.raw = append(s.raw, b.thinking.block())
	}
	return nil
}

// thinking is a block that goes back to the provider as it came.
type thinking struct {
	text, signature strings.Builder
	redacted        string
}

func (t *thinking) block() json.RawMessage {
	if t.redacted != "" {
		return block(anthropicRedacted{"redacted_thinking", t.redacted})
	}
	return block(anthropicThinking{"thinking", t.text.String(), t.signature.String()})
}

func (s *anthropicStream) addRaw(n int) error {
	if s.rawBytes += n; s.rawBytes > s.limits.TextBytes {
		return final(problem.TooLarge, "the model's thinking is over %d bytes", s.limits.TextBytes)
	}
	return nil
}
