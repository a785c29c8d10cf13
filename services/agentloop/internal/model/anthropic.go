package model

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// anthropic speaks Messages.
type anthropic struct {
	*asker
	url string
}

const anthropicVersion = "2023-06-01"

func newAnthropic(a *asker, base *url.URL) *anthropic {
	if !strings.HasSuffix(base.Path, "/v1") { // people write the base URL with and without
		base = base.JoinPath("v1")
	}
	return &anthropic{a, base.JoinPath("messages").String()}
}

func (p *anthropic) Complete(ctx context.Context, r Request, onDelta func(string)) (Answer, error) {
	if r.Model == "" {
		r.Model = p.model
	}
	if err := r.check(); err != nil {
		return Answer{}, err
	}
	header := http.Header{"Anthropic-Version": {anthropicVersion}}
	if key := p.reveal(); key != "" {
		header.Set("X-Api-Key", key)
	}
	s := anthropicStream{asker: p.asker, draft: newDraft(p.limits, onDelta), open: map[int]*anthropicBlock{}}
	if err := p.stream(ctx, p.url, header, anthropicRequestOf(r), s.event); err != nil {
		return Answer{}, err
	}
	if !s.stopped {
		return Answer{}, broken("the model's answer ended before its message_stop")
	}
	return s.answer()
}

// anthropicStream folds the events of one stream.
type anthropicStream struct {
	*asker
	draft    *draft
	open     map[int]*anthropicBlock // blocks between start and stop
	raw      []json.RawMessage       // finished thinking blocks
	rawBytes int
	usage    anthropicUsage
	stop     StopReason
	stopped  bool // the terminal marker
}

// anthropicBlock is an open block. Exactly one of call and thinking is set, or neither for text and for kinds that we
// did not ask for.
type anthropicBlock struct {
	text     bool
	call     *draftCall
	input    json.RawMessage // sent whole at the start by some compatible servers
	thinking *thinking
}

func (s *anthropicStream) event(data []byte) (done bool, err error) {
	var e anthropicEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return false, broken("the model provider sent an event that is not one of Messages")
	}
	switch e.Type {
	case "message_start":
		s.usage.merge(e.Message.Usage)
	case "content_block_start":
		err = s.startBlock(e.Index, e.ContentBlock)
	case "content_block_delta":
		err = s.delta(e.Index, e.Delta)
	case "content_block_stop":
		err = s.stopBlock(e.Index)
	case "message_delta":
		s.usage.merge(e.Usage)
		err = s.setStop(e.Delta.StopReason)
	case "message_stop":
		s.stopped = true
	case "error":
		err = s.refusedInStream(e.Error)
	} // others, such as ping and those to come, are to be ignored
	return s.stopped, err
}

func (s *anthropicStream) setStop(reason string) error {
	if reason == "" {
		return nil
	}
	stop, known := anthropicStops[reason]
	if !known {
		return final(problem.Upstream, "the model stopped for the unknown reason %.40q", reason)
	}
	s.stop = stop
	return nil
}

var anthropicStops = map[string]StopReason{
	"end_turn":                      StopEnd,
	"stop_sequence":                 StopEnd,
	"tool_use":                      StopToolCalls,
	"max_tokens":                    StopLength,
	"model_context_window_exceeded": StopLength,
	"refusal":                       StopRefused,
}

func (s *anthropicStream) answer() (Answer, error) {
	if s.stop == "" {
		return Answer{}, broken("the model's answer ended without a stop_reason")
	}
	if len(s.open) > 0 {
		return Answer{}, broken("the model's answer ended inside a block")
	}
	s.draft.setUsage(s.usage.total())
	a, err := s.draft.answer(s.stop)
	if err != nil || len(s.raw) == 0 {
		return a, err
	}
	a.Raw, err = json.Marshal(s.raw)
	return a, err
}
