package link

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
)

// A piece whose answer is lost is asked for again, as the same piece; a broker that says not now is asked again to begin;
// what it refuses is told in its words.
func TestBrokerIsAskedAgain(t *testing.T) {
	b := buskit.Start(t)
	nc := b.Conn(t, bus.BootUser).NC
	l := &Link{}
	l.identity.Tenant, l.identity.Environment = "tnt_a", "env_box"
	var mu sync.Mutex
	heard := map[string][]string{} // by verb, the numbers of pieces
	sub, err := nc.Subscribe(bus.GitSubject("tnt_a", "env_box", ">"), func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		verb := m.Subject[len(bus.GitSubject("tnt_a", "env_box", "")):]
		heard[verb] = append(heard[verb], m.Header.Get(connector.HeaderGitSeq))
		out := nats.NewMsg(m.Reply)
		switch n := len(heard[verb]); {
		case verb == "open" && n == 1:
			out.Header.Set(connector.HeaderGitCode, string(problem.Busy))
		case verb == "open" && n == 2:
			out.Data = []byte(`{"broker":"one","stream":"s"}`)
		case verb == "open":
			out.Header.Set(connector.HeaderGitCode, string(problem.Denied))
			out.Data = []byte("the grant was revoked")
		case n%2 == 1:
			return // lost
		case verb == "one.get":
			out.Data = []byte("piece")
			out.Header.Set(connector.HeaderGitLast, "1")
		}
		_ = m.RespondMsg(out) // whoever asked is gone
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	asks := broker{l, nc, 50 * time.Millisecond}
	lent, err := asks.Open(t.Context(), connector.GitOpen{Call: id.Call("call_1")})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := lent.Put(t.Context(), []byte("x"), false); err != nil {
			t.Fatal(err)
		}
	}
	if data, _, last, err := lent.Get(t.Context()); err != nil || string(data) != "piece" || !last {
		t.Errorf("%q, %v, %v", data, last, err)
	}
	mu.Lock()
	for verb, want := range map[string]string{"open": "[ ]", "one.put": "[1 1 2 2]", "one.get": "[1 1]"} {
		if got := fmt.Sprint(heard[verb]); got != want {
			t.Errorf("%s was heard as %s, want %s", verb, got, want)
		}
	}
	mu.Unlock()
	if _, err := asks.Open(t.Context(), connector.GitOpen{}); problem.CodeOf(err) != problem.Denied || problem.DetailOf(err).Message != "the grant was revoked" {
		t.Errorf("refused: %v", err)
	}
}
