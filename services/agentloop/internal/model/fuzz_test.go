package model

import (
	"encoding/json"
	"strings"
	"testing"
)

func FuzzObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"a":[{"a":1}]}}`, `{"a":1,"a":2}`, `[]`, `{"a":[`, ` {"a":null} `, "{}\f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkObject(s) != nil {
			return
		}
		// What is accepted survives a parser that keeps one member for each name: nothing was hidden.
		var v map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Errorf("accepted %q: %v", s, err)
		}
	})
}

// Whatever a stream holds, an answer that comes out of it keeps the promises of the package.
func FuzzStreams(f *testing.F) {
	f.Add("data: " + openAICalls(`{"id":"c1","function":{"name":"a","arguments":"{}"}}`) + "\n\ndata: " + openAITools + "\n\n")
	f.Add("data: " + blockTool(0, "c1", "a", `{"x":1}`) + "\n\ndata: " + blockStop + "\n\ndata: " + messageTools + "\n\ndata: " + messageStop + "\n\n")
	limits := Limits{LineBytes: 1 << 12, TextBytes: 1 << 10, ArgsBytes: 1 << 10, ToolCalls: 3}.WithDefaults()
	ask := &asker{reveal: Key("").Reveal, limits: limits}
	f.Fuzz(func(t *testing.T, stream string) {
		o := openAIStream{asker: ask, draft: newDraft(limits, nil), byIndex: map[int]*draftCall{}}
		if fold(stream, limits, o.event) && o.stop != "" {
			wantSound(t, o.draft.answer, o.stop)
		}
		a := anthropicStream{asker: ask, draft: newDraft(limits, nil), open: map[int]*anthropicBlock{}}
		if fold(stream, limits, a.event) && a.stopped {
			wantSound(t, func(StopReason) (Answer, error) { return a.answer() }, a.stop)
		}
	})
}

func fold(stream string, limits Limits, each func([]byte) (bool, error)) (whole bool) {
	e := newEvents(strings.NewReader(stream), limits)
	for {
		data, err := e.next()
		if err != nil {
			return true
		}
		if done, err := each(data); done || err != nil {
			return err == nil
		}
	}
}

// wantSound checks an answer by asking for the next one with it.
func wantSound(t *testing.T, answer func(StopReason) (Answer, error), stop StopReason) {
	t.Helper()
	a, err := answer(stop)
	if err != nil {
		return
	}
	next := []Message{{Role: RoleUser, Text: "x"}, a.Message()}
	results := Message{Role: RoleTool}
	for _, c := range a.ToolCalls {
		results.ToolResults = append(results.ToolResults, ToolResult{CallID: c.ID})
	}
	if len(a.ToolCalls) > 0 {
		next = append(next, results)
	}
	if err := (Request{Model: "m", MaxOutputTokens: 1, Messages: next}).check(); err != nil {
		t.Errorf("the answer %+v cannot be repeated: %v", a, err)
	}
}
