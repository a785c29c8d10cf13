package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func anySize(Kind) int { return 16 << 20 }

func TestMessagesSurvive(t *testing.T) {
	var pipe bytes.Buffer
	c := NewConn(&pipe)
	for _, size := range []int{0, 1, MaxFrame - 100, MaxFrame, MaxFrame + 1, 3*MaxFrame + 7} {
		sent := Log{Level: "info", Line: strings.Repeat("<", size)}
		if err := c.Send(KindLog, sent); err != nil {
			t.Fatal(err)
		}
		if over := pipe.Len() - size; over > 200 {
			t.Errorf("%d bytes cost %d more", size, over)
		}
		kind, body, err := c.Receive(anySize)
		if err != nil || kind != KindLog {
			t.Fatal(kind, err)
		}
		var got Log
		if err := Decode(body, &got); err != nil || got != sent {
			t.Errorf("%d bytes do not survive: %v", size, err)
		}
	}
}

func TestReceiveStopsAtTheLimit(t *testing.T) {
	var pipe bytes.Buffer
	c := NewConn(&pipe)
	if err := c.Send(KindLog, Log{Line: strings.Repeat("x", 5000)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Receive(func(Kind) int { return 4000 }); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for _, body := range []string{``, `{`, `null x`, `{"level":"a"}{}`, `{"admin":true}`, `{"level":1}`, `[]`} {
		if err := Decode([]byte(body), &Log{}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestLimits(t *testing.T) {
	most := Limits{}.WithDefaults()
	if err := most.Validate(); err != nil {
		t.Error(err)
	}
	got := Limits{Calls: 1000, Fetches: 3}.AtMost(most)
	if got.Calls != most.Calls || got.Fetches != 3 || got.CPU != most.CPU {
		t.Errorf("%+v", got)
	}
}

// FuzzReceive: no bytes make the reader panic, or keep more than the limit.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 3, 0, '{', '}'})
	f.Add([]byte{0, 0, 0, 3, 3, 1, '{', 0, 0, 0, 3, 3, 0, '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := NewConn(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(raw), io.Discard})
		for {
			kind, body, err := c.Receive(func(k Kind) int { return 64 * int(k%4) })
			if err != nil {
				return
			}
			if len(body) > 64*int(kind%4) {
				t.Fatalf("kind %d with %d bytes", kind, len(body))
			}
			var call Call
			if Decode(body, &call) == nil && !json.Valid(call.Args) && call.Args != nil {
				t.Fatalf("arguments %q", call.Args)
			}
		}
	})
}
