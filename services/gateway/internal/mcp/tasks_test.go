package mcp

import (
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
)

// A task whose call finished, and whose result cannot be given out yet, has not failed: a client that was told so would make the
// call again.
func TestFinishedTaskThatCannotBeGivenOutHasNotFailed(t *testing.T) {
	conn := buskit.Start(t).Conn(t, string(schemas.Gateway))
	e := &Endpoint{State: control.New(), Conn: conn, Log: eventlog.New(conn)}
	s := newSessions()
	defer s.close()
	c := s.talk(auth.Agent{Tenant: "tnt_a", Agent: "agt_a", Token: "tok_a"}, "", "")
	c.over() // nothing is recorded for it any more
	k := &task{standing: standing{call: "call_1", run: "mcp_1", seq: 1, tool: "web.give"},
		state: &calls.State{Requested: &call.Requested{Call: "call_1"}, Outcome: call.Finished{Call: "call_1", Taint: []string{"con_web"}}}}
	c.hold("write {}", k.standing, time.Now())
	if out, err := e.detailed(t.Context(), c, nil, k); problem.CodeOf(err) != problem.Pending {
		t.Errorf("%s, %v", out, err)
	}
	if c.held["write {}"].call != "call_1" {
		t.Error("the same call again is made a second time")
	}
	if len(c.tainted()) > 0 {
		t.Error("it is tainted by what it was not given")
	}
}
