package rpc

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/micro"
)

// pushed is a stored message as a push consumer delivers it. The server lets no client publish with such a reply, so
// it cannot come over the bus in a test.
type pushed struct {
	micro.Request
	reply string
}

func (p pushed) Reply() string { return p.reply }
func (pushed) Subject() string { return "ew.rpc.v1.agentloop.run_start.gateway" }
func (pushed) Data() []byte    { return []byte("{}") }

func TestAcknowledgementsAreNoReplies(t *testing.T) {
	s := &Server{log: slog.New(slog.DiscardHandler), slots: make(chan struct{}, 1)}
	for _, reply := range []string{"$JS.ACK.EW_ACTIVITY.evil.1.1.1.1.1", "$JS.ACK.hub.hash.EW_ACTIVITY.evil.1.1.1.1.1.x", ""} {
		if s.admit(pushed{reply: reply}) {
			t.Errorf("a message that is answered at %q is a question", reply)
		}
	}
	if !s.admit(pushed{reply: "_INBOX.gateway.x"}) {
		t.Error("a question is refused")
	}
}
