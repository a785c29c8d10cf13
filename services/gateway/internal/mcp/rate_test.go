package mcp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// An agent that makes calls faster than it may is told to wait, and for how long; another one is not held up by it.
func TestRateOfCallsIsPerAgent(t *testing.T) {
	s := newSessions()
	defer s.close()
	now := time.Unix(1000, 0)
	l := Limits{AtOnce: 1000, Rate: 10, Burst: 3}
	fast, slow := auth.Agent{Tenant: "tnt_main", Agent: "agt_fast"}, auth.Agent{Tenant: "tnt_main", Agent: "agt_slow"}
	call := func(who auth.Agent, at time.Time) error {
		leave, err := s.enter(who, l, at)
		if err == nil {
			leave()
		}
		return err
	}
	for range 3 {
		if err := call(fast, now); err != nil {
			t.Fatal(err)
		}
	}
	err := call(fast, now)
	if problem.CodeOf(err) != problem.Busy {
		t.Fatal(err)
	}
	var wire *jsonrpc.Error
	if !errors.As((&Endpoint{Note: slog.Default()}).fault(t.Context(), "tools/call", err), &wire) {
		t.Fatal("no error of the protocol")
	}
	var data struct {
		Code  problem.Code
		Retry int64 `json:"retry_after_ms"`
	}
	if json.Unmarshal(wire.Data, &data) != nil || data.Code != problem.Busy || data.Retry != 100 || !strings.Contains(wire.Message, "try again in 100ms") {
		t.Errorf("%s %s", wire.Message, wire.Data)
	}
	if err := call(slow, now); err != nil {
		t.Error(err)
	}
	if err := call(auth.Agent{Tenant: "tnt_other", Agent: "agt_fast"}, now); err != nil {
		t.Error(err)
	}
	if err := call(fast, now.Add(100*time.Millisecond)); err != nil { // what was refused did not count
		t.Error(err)
	}
	l.Rate = 0
	free := newSessions()
	defer free.close()
	for range 1000 {
		if leave, err := free.enter(fast, l, now); err != nil {
			t.Fatal(err)
		} else {
			leave()
		}
	}
}
