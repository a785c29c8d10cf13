package model

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// openAI speaks Chat Completions. The newer Responses API is left alone: most servers behind a base URL lack it.
type openAI struct {
	*asker
	url string

	// native is OpenAI itself, whose newer models accept only max_completion_tokens; older compatible servers know
	// only max_tokens, and ignoring it would make their answers unbounded.
	native bool
}

func newOpenAI(a *asker, base *url.URL) *openAI {
	if base.Path == "" { // http://127.0.0.1:11434, as people write it for Ollama
		base.Path = "/v1"
	}
	host := base.Hostname()
	return &openAI{a, base.JoinPath("chat", "completions").String(), host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com")}
}

func (p *openAI) Complete(ctx context.Context, r Request, onDelta func(string)) (Answer, error) {
	if r.Model == "" {
		r.Model = p.model
	}
	if err := r.check(); err != nil {
		return Answer{}, err
	}
	header := http.Header{}
	if key := p.reveal(); key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	s := openAIStream{asker: p.asker, draft: newDraft(p.limits, onDelta), byIndex: map[int]*draftCall{}}
	if err := p.stream(ctx, p.url, header, p.request(r), s.event); err != nil {
		return Answer{}, err
	}
	if s.stop == "" {
		return Answer{}, broken("the model's answer ended before its finish_reason")
	}
	return s.draft.answer(s.stop)
}

// openAIStream folds the chunks of one stream.
type openAIStream struct {
	*asker
	draft   *draft
	byIndex map[int]*draftCall // the latest call at each index
	refused bool
	stop    StopReason // set by the terminal marker
}

func (s *openAIStream) event(data []byte) (done bool, err error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	var c openAIChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return false, broken("the model provider sent a chunk that is not a chat completion")
	}
	if c.Error != nil {
		return false, s.refusedInStream(*c.Error)
	}
	if c.Usage != nil {
		s.draft.setUsage(c.Usage.PromptTokens, c.Usage.CompletionTokens)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // we ask for one choice
		}
		if err := s.choice(choice); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (s *openAIStream) choice(c openAIChoice) error {
	text := c.Delta.Content + c.Delta.Refusal
	if s.stop != "" && (text != "" || len(c.Delta.ToolCalls) > 0) {
		return broken("the model's answer went on after its finish_reason")
	}
	s.refused = s.refused || c.Delta.Refusal != ""
	if err := s.draft.addText(text); err != nil {
		return err
	}
	for _, d := range c.Delta.ToolCalls {
		if err := s.toolCall(d); err != nil {
			return err
		}
	}
	if c.FinishReason == "" {
		return nil
	}
	stop, known := openAIStops[c.FinishReason]
	if !known {
		return final(problem.Upstream, "the model stopped for the unknown reason %.40q", c.FinishReason)
	}
	if s.stop = stop; s.refused {
		s.stop = StopRefused // the provider says "stop"
	}
	return nil
}

// toolCall adds a piece to the call at its index. A new id at a used index is a new call: some servers put every call
// at index 0, or leave the index out. Pieces of one call may repeat its id and name, but not change the name.
func (s *openAIStream) toolCall(d openAICallDelta) error {
	c := s.byIndex[d.Index]
	if c == nil || (d.ID != "" && d.ID != c.id) {
		var err error
		if c, err = s.draft.addCall(d.ID, d.Function.Name); err != nil {
			return err
		}
		s.byIndex[d.Index] = c
	}
	switch d.Function.Name {
	case "", c.name:
	default:
		if c.name != "" {
			return broken("the model changed the tool in the middle of a call")
		}
		c.name = d.Function.Name
	}
	return s.draft.addArgs(c, d.Function.Arguments)
}

var openAIStops = map[string]StopReason{
	"stop":           StopEnd,
	"tool_calls":     StopToolCalls,
	"function_call":  StopToolCalls,
	"length":         StopLength,
	"content_filter": StopRefused,
}
