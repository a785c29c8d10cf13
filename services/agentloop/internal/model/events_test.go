package model

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/google/go-cmp/cmp"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream string
		want   []string
	}{
		"plain":              {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"carriage returns":   {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"no space":           {"data:a\n\n", []string{"a"}},
		"several lines":      {"data: a\ndata:  b\n\n", []string{"a\n b"}},
		"names and comments": {": hi\nevent: x\nid: 1\nretry: 5\ndata: a\n\n: bye\n\n", []string{"a"}},
		"empty data":         {"data\n\ndata:\n\n", []string{"", ""}},
		"not quite data":     {"database: a\nda ta: b\n\n", nil},
		"cut event":          {"data: a\n\ndata: b\n", []string{"a"}},
		"cut line":           {"data: a\n\ndata: b", []string{"a"}},
	} {
		e := newEvents(strings.NewReader(tc.stream), Limits{}.WithDefaults())
		var got []string
		for {
			data, err := e.next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(data))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOversize(t *testing.T) {
	t.Parallel()
	callOf := func(i int, args string) string {
		return openAICalls(fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"a","arguments":%q}}`, i, i, args))
	}
	for name, tc := range map[string]struct {
		limits Limits
		chunks []string
	}{
		"a line":            {Limits{LineBytes: 100}, []string{openAIText(strings.Repeat("x", 100))}},
		"an event of lines": {Limits{LineBytes: 100}, []string{strings.Repeat("x\ndata: ", 100)}},
		"the stream":        {Limits{StreamBytes: 300}, []string{"{}\n\n" + strings.Repeat(": ping\n\n", 200)}},
		"the text":          {Limits{TextBytes: 10}, []string{openAIText("12345"), openAIText("67890"), openAIText("1"), openAIStop}},
		"one's arguments":   {Limits{ArgsBytes: 10}, []string{callOf(0, `{"a":1`), callOf(0, `23456}`), openAITools}},
		"all arguments":     {Limits{ArgsBytes: 10}, []string{callOf(0, `{"a":1}`), callOf(1, `{"a":1}`), openAITools}},
		"the calls":         {Limits{ToolCalls: 2}, []string{callOf(0, ``), callOf(1, ``), callOf(2, ``), openAITools}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serve(t, OpenAI, tc.limits, sse(tc.chunks...))
			_, err := p.Complete(t.Context(), hello(), nil)
			wantFailure(t, err, problem.TooLarge, false)
		})
	}
	t.Run("thinking", func(t *testing.T) {
		p, _ := serve(t, Anthropic, Limits{TextBytes: 10}, sse(
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"123456"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"78901"}}`))
		_, err := p.Complete(t.Context(), hello(), nil)
		wantFailure(t, err, problem.TooLarge, false)
	})
}

// An endless stream without a newline must end at the limit, not in memory.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, OpenAI, Limits{LineBytes: 1 << 16}, func(w http.ResponseWriter, r *http.Request) {
		sse()(w, r)
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat("data: x", 1000))); err != nil {
				return
			}
		}
	})
	_, err := p.Complete(t.Context(), hello(), nil)
	wantFailure(t, err, problem.TooLarge, false)
}

// A connection that breaks is told from an answer that ends, and neither is an answer.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, OpenAI, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		sse(openAIText("Hel"))(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := p.Complete(t.Context(), hello(), nil)
	wantFailure(t, err, problem.Unavailable, true)
}
