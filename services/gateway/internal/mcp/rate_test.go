package mcp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
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

// Whatever a client asks that the broker has to be asked for is under the agent's bounds, with the calls; what is not is answered
// all the same. There is no bus here: a question that got past them would not be answered so.
func TestQuestionsAreUnderTheLimits(t *testing.T) {
	full := map[string]Limits{"too many at once": {}, "too fast": {AtOnce: 1000, Rate: 1}}
	for name, limits := range full {
		e := &Endpoint{Note: slog.New(slog.DiscardHandler), State: control.New(), Limits: limits, sessions: newSessions()}
		defer e.sessions.close()
		c := e.sessions.begin(auth.Agent{Tenant: "tnt_main", Agent: "agt_a"}, "")
		one := e.sessions.begin(auth.Agent{Tenant: "tnt_main", Agent: "agt_a"}, "tickets")
		marked := "tickets__" + strings.Repeat("x", 40) + "_0123abcd"
		ask := func(c *conversation, method string, r mcp.Request) {
			t.Helper()
			_, err := e.answer(t.Context(), c, method, r, nil)
			var wire *jsonrpc.Error
			var data struct {
				Code  problem.Code
				Retry int64 `json:"retry_after_ms"`
			}
			if !errors.As(err, &wire) || json.Unmarshal(wire.Data, &data) != nil || data.Code != problem.Busy || (data.Retry > 0) != (limits.Rate > 0) {
				t.Errorf("%s: %s: %v %+v", name, method, err, data)
			}
		}
		for _, c := range []*conversation{c, one} {
			ask(c, "tools/list", &mcp.ListToolsRequest{})
			ask(c, "resources/list", &mcp.ListResourcesRequest{})
			ask(c, "resources/templates/list", &mcp.ListResourceTemplatesRequest{})
			ask(c, "prompts/list", &mcp.ListPromptsRequest{})
			ask(c, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: marked}})
			ask(c, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "tickets__x"}})
			ask(c, "resources/read", &mcp.ReadResourceRequest{Params: &mcp.ReadResourceParams{URI: "file:///a"}})
			ask(c, "prompts/get", &mcp.GetPromptRequest{Params: &mcp.GetPromptParams{Name: marked}})
			ask(c, "completion/complete", &mcp.CompleteRequest{Params: &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "file:///{a}"}}})
			ask(c, "completion/complete", &mcp.CompleteRequest{Params: &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: marked}}})
		}
		for tool, args := range map[string]string{searchTools: `{"query":"x"}`, describeTool: `{"name":"tickets__x"}`} {
			_, err := e.tellOf(t.Context(), c, &mcp.CallToolParamsRaw{Name: tool, Arguments: json.RawMessage(args)})
			if problem.CodeOf(err) != problem.Busy {
				t.Errorf("%s: %s: %v", name, tool, err)
			}
		}
	}
}

// However many tasks an agent waits for, it can make calls, and ask about tasks or cancel them.
func TestWaitingForTasksHoldsNothingUp(t *testing.T) {
	s := newSessions()
	defer s.close()
	who := auth.Agent{Tenant: "tnt_main", Agent: "agt_a"}
	l, now := Limits{AtOnce: 3}, time.Unix(1000, 0)
	var leaves []func()
	for range 3 {
		leave, err := s.await(who, l, now)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := s.await(who, l, now); problem.CodeOf(err) != problem.Busy {
		t.Errorf("more are waited for: %v", err)
	}
	poll, err := s.poll(who, l, now)
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.enter(who, l, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, leave := range append(leaves, poll, call) {
		leave()
	}
	if len(s.waits)+len(s.polls)+len(s.atOnce) != 0 {
		t.Error("it is counted for ever")
	}
}

// An agent that asks about tasks faster than it may is told to wait, and is not held up in its calls by that.
func TestRateOfRequestsAboutTasks(t *testing.T) {
	s := newSessions()
	defer s.close()
	who := auth.Agent{Tenant: "tnt_main", Agent: "agt_a"}
	l, now := Limits{AtOnce: 1, Rate: 10, Burst: 2}, time.Unix(1000, 0)
	for i := range 2 * looksPerCall {
		ask := s.poll
		if i%2 == 1 {
			ask = s.await
		}
		leave, err := ask(who, l, now)
		if err != nil {
			t.Fatal(i, err)
		}
		leave()
	}
	var fast *tooFast
	if _, err := s.poll(who, l, now); !errors.As(err, &fast) || fast.after != 25*time.Millisecond {
		t.Errorf("%v", err)
	}
	if _, err := s.poll(who, l, now.Add(25*time.Millisecond)); err != nil { // what was refused did not count, nor is it under way
		t.Error(err)
	}
	if _, err := s.enter(who, l, now); err != nil {
		t.Error(err)
	}
}
