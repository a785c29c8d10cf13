package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
)

type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }
func (*sink) Ended() bool  { return false }

// What waited to be written until its caller had given up is not written: it would begin after its end was told.
func TestGivenUpBeforeItIsWritten(t *testing.T) {
	program := &sink{}
	l := &lines{program: program, byToken: map[string]*exchange{}, byID: map[string]*exchange{}}
	ctx, giveUp := context.WithCancel(t.Context())
	x := &exchange{method: "tools/call"}
	token, done := l.expect(ctx, x, "call_1")
	defer done()
	message := func(id int) []byte {
		raw, err := json.Marshal(map[string]any{"id": id, "method": "tools/call", "params": map[string]any{"_meta": map[string]any{"progressToken": token}}})
		if err != nil {
			t.Fatal(err)
		}
		return append(raw, '\n')
	}
	giveUp()
	if _, err := l.Write(message(1)); err == nil || program.Len() != 0 || x.wasSent() {
		t.Errorf("%v; the program was told %q", err, program.String())
	}
	again, done2 := l.expect(t.Context(), x, "call_1")
	defer done2()
	token = again
	if _, err := l.Write(message(2)); err != nil || !x.wasSent() {
		t.Errorf("%v; the program was told %q", err, program.String())
	}
}
