package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
	"github.com/execwarden/execwarden/services/agentloop/internal/model"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func fold(budgets agent.Budgets, events ...schemas.Event) *loop.State {
	s := loop.New()
	s.Apply(1, run.Created{Run: "run_1", Agent: agent.Defined{Agent: "agt_a", Budgets: budgets, Model: agent.Model{MaxOutputTokens: 100}}, Body: run.Prompt{Text: "do it"}})
	apply(s, 2, events...)
	return s
}

func apply(s *loop.State, seq uint64, events ...schemas.Event) {
	for i, ev := range events {
		if strings.HasPrefix(ev.Kind(), "call.") {
			s.ApplyCall(seq+uint64(i), ev)
		} else {
			s.Apply(seq+uint64(i), ev)
		}
	}
}

func asked(step, attempt int) schemas.Event { return run.ModelRequested{Step: step, Attempt: attempt} }

func answered(step, tokens int, calls ...id.Call) schemas.Event {
	c := run.ModelCompleted{Step: step, InputTokens: tokens, Body: run.Answer{Text: fmt.Sprint("answer ", step)}}
	for _, name := range calls {
		c.Body.Calls = append(c.Body.Calls, run.ToolUse{ID: "use_" + string(name), Call: name, Tool: "x.y", Args: json.RawMessage("{}")})
	}
	return c
}

func failed(step, attempt int, retryable bool, after int) schemas.Event {
	return run.ModelFailed{Step: step, Attempt: attempt, Code: "busy", Message: "slow down", Retryable: retryable, RetryAfter: after}
}

func requested(c id.Call) schemas.Event { return call.Requested{Call: c} }
func finished(c id.Call) schemas.Event {
	return call.Finished{Call: c, Body: call.Result{Result: json.RawMessage("1")}}
}

// told is an action in a word and what matters of it.
func told(a loop.Action) string {
	switch a := a.(type) {
	case loop.Wait:
		return "wait"
	case loop.AskModel:
		if !a.NotBefore.IsZero() {
			return fmt.Sprintf("ask %d.%d in %s", a.Step, a.Attempt, a.NotBefore.Sub(now))
		}
		return fmt.Sprintf("ask %d.%d", a.Step, a.Attempt)
	case loop.AskTools:
		var names []string
		for _, u := range a.Uses {
			names = append(names, string(u.Call))
		}
		return "tools " + strings.Join(names, " ")
	case loop.Complete:
		return "complete " + a.Text
	case loop.Fail:
		return "fail " + string(a.Code)
	case loop.Cancel:
		return "cancel " + a.Reason
	}
	return "?"
}

func TestNext(t *testing.T) {
	type events = []schemas.Event
	stop := run.CancelRequested{Reason: "stop"}
	none := agent.Budgets{}
	for name, c := range map[string]struct {
		budgets agent.Budgets
		events  events
		want    string
	}{
		"created":                       {none, nil, "ask 1.1"},
		"asked":                         {none, events{asked(1, 1)}, "wait"},
		"answered":                      {none, events{asked(1, 1), answered(1, 0)}, "complete answer 1"},
		"wants tools":                   {none, events{asked(1, 1), answered(1, 0, "call_1", "call_2")}, "tools call_1 call_2"},
		"one tool asked, then a crash":  {none, events{asked(1, 1), answered(1, 0, "call_1", "call_2"), requested("call_2")}, "tools call_1"},
		"tools asked":                   {none, events{asked(1, 1), answered(1, 0, "call_1", "call_2"), requested("call_1"), requested("call_2")}, "wait"},
		"one of two is back":            {none, events{asked(1, 1), answered(1, 0, "call_1", "call_2"), requested("call_1"), requested("call_2"), finished("call_1")}, "wait"},
		"both are back":                 {none, events{asked(1, 1), answered(1, 0, "call_1", "call_2"), requested("call_1"), requested("call_2"), finished("call_2"), call.Refused{Call: "call_1"}}, "ask 2.1"},
		"a late answer is none":         {none, events{asked(1, 1), answered(1, 0, "call_1"), requested("call_1"), call.Late{Call: "call_1"}}, "wait"},
		"a held call":                   {none, events{asked(1, 1), answered(1, 0, "call_1"), requested("call_1"), call.Held{Call: "call_1"}}, "wait"},
		"an outcome before its request": {none, events{asked(1, 1), answered(1, 0, "call_1"), finished("call_1")}, "ask 2.1"},
		"another call's outcome":        {none, events{asked(1, 1), answered(1, 0, "call_1"), requested("call_1"), finished("call_9")}, "wait"},
		"a failure that passes":         {none, events{asked(1, 1), failed(1, 1, true, 0)}, "ask 1.2 in 1s"},
		"a failure that says when":      {none, events{asked(1, 1), failed(1, 1, true, 90_000)}, "ask 1.2 in 1m30s"},
		"a second failure":              {none, events{asked(1, 1), failed(1, 1, true, 0), asked(1, 2), failed(1, 2, true, 100)}, "ask 1.3 in 2s"},
		"asked again":                   {none, events{asked(1, 1), failed(1, 1, true, 0), asked(1, 2)}, "wait"},
		"an old failure, heard late":    {none, events{asked(1, 1), failed(1, 1, true, 0), asked(1, 2), failed(1, 1, true, 0)}, "wait"},
		"the sixth failure":             {none, events{asked(1, 6), failed(1, 6, true, 0)}, "fail busy"},
		"a failure that stays":          {none, events{asked(1, 1), failed(1, 1, false, 0)}, "fail busy"},
		"a wait without end":            {none, events{asked(1, 1), failed(1, 1, true, 3_600_000)}, "fail busy"},
		"a failure after the answer":    {none, events{asked(1, 1), answered(1, 0), failed(1, 1, false, 0)}, "complete answer 1"},
		"a second answer":               {none, events{asked(1, 1), answered(1, 0), answered(1, 0, "call_1")}, "complete answer 1"},
		"an answer to no step":          {none, events{asked(1, 1), answered(2, 0)}, "wait"},
		"a step too far":                {none, events{asked(2, 1), answered(2, 0)}, "ask 1.1"},

		"steps used up":           {agent.Budgets{Steps: 1}, events{asked(1, 1), answered(1, 0, "call_1"), requested("call_1"), finished("call_1")}, "fail budget_exhausted"},
		"steps that suffice":      {agent.Budgets{Steps: 1}, events{asked(1, 1), answered(1, 0)}, "complete answer 1"},
		"calls used up":           {agent.Budgets{Calls: 1}, events{asked(1, 1), answered(1, 0, "call_1", "call_2")}, "fail budget_exhausted"},
		"calls that suffice":      {agent.Budgets{Calls: 2}, events{asked(1, 1), answered(1, 0, "call_1", "call_2")}, "tools call_1 call_2"},
		"tokens used up":          {agent.Budgets{Tokens: 150}, events{asked(1, 1), answered(1, 51, "call_1"), requested("call_1"), finished("call_1")}, "fail budget_exhausted"},
		"tokens that suffice":     {agent.Budgets{Tokens: 150}, events{asked(1, 1), answered(1, 50, "call_1"), requested("call_1"), finished("call_1")}, "ask 2.1"},
		"tokens for no answer":    {agent.Budgets{Tokens: 99}, nil, "fail budget_exhausted"},
		"a retry is budgeted too": {agent.Budgets{Tokens: 99}, events{asked(1, 1), failed(1, 1, true, 0)}, "fail budget_exhausted"},

		"cancelled at once":             {none, events{stop}, "cancel stop"},
		"cancelled while asked":         {none, events{asked(1, 1), stop}, "cancel stop"},
		"cancelled with an answer":      {none, events{asked(1, 1), stop, answered(1, 0)}, "cancel stop"},
		"cancelled in a pause":          {none, events{asked(1, 1), failed(1, 1, true, 0), stop}, "cancel stop"},
		"cancelled with calls to ask":   {none, events{asked(1, 1), answered(1, 0, "call_1"), stop}, "cancel stop"},
		"cancelled with calls open":     {none, events{asked(1, 1), answered(1, 0, "call_1"), requested("call_1"), stop}, "cancel stop"},
		"cancelled after its end":       {none, events{asked(1, 1), answered(1, 0), run.Completed{}, stop}, "wait"},
		"completed":                     {none, events{asked(1, 1), answered(1, 0), run.Completed{}}, "wait"},
		"failed":                        {none, events{run.Failed{}}, "wait"},
		"cancelled":                     {none, events{stop, run.Cancelled{}}, "wait"},
		"an outcome after the end":      {none, events{asked(1, 1), answered(1, 0, "call_1"), run.Cancelled{}, finished("call_1")}, "wait"},
		"created twice":                 {none, events{run.Created{Run: "run_2"}, asked(1, 1), answered(1, 0)}, "complete answer 1"},
		"an event of a kind not of his": {none, events{run.Cancelled{Reason: "x"}, asked(1, 1)}, "wait"},
	} {
		if got := told(loop.Next(fold(c.budgets, c.events...), now)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := told(loop.Next(loop.New(), now)); got != "wait" {
		t.Errorf("a run that is not there: %s", got)
	}
}

// paired checks what every provider demands: each call is followed by its one result.
func paired(t interface{ Fatalf(string, ...any) }, r model.Request) {
	open := map[string]bool{}
	for i, m := range r.Messages {
		if m.Role != model.RoleTool && len(open) > 0 {
			t.Fatalf("message %d: calls %v before it have no result", i, open)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
		for _, res := range m.ToolResults {
			if !open[res.CallID] {
				t.Fatalf("message %d: a result for %s, which is not open", i, res.CallID)
			}
			delete(open, res.CallID)
		}
	}
	if len(open) > 0 {
		t.Fatalf("calls %v have no result", open)
	}
}

// Whatever the world answers, however often and in whatever order, a run goes its one way to one end.
func TestAnyWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budgets := agent.Budgets{Steps: rapid.IntRange(0, 4).Draw(t, "steps"), Calls: rapid.IntRange(0, 6).Draw(t, "calls"), Tokens: rapid.SampledFrom([]int{0, 300}).Draw(t, "tokens")}
		s, seq := fold(budgets), uint64(2)
		say := func(ev schemas.Event) { apply(s, seq, ev); seq++ }
		var open []id.Call
		results := map[id.Call]string{} // as the model was first told them
		for range 60 {
			paired(t, loop.Render(s, nil))
			for _, step := range s.Steps {
				if step.Completed == nil {
					continue
				}
				for _, use := range step.Completed.Body.Calls {
					if state := s.Calls[use.Call]; state != nil && state.Outcome != nil {
						kind := state.Outcome.Kind()
						if before, told := results[use.Call]; told && before != kind {
							t.Fatalf("%s was %s and is %s now", use.Call, before, kind)
						}
						results[use.Call] = kind
					}
				}
			}
			ended := s.Ended != nil
			next := loop.Next(s, now)
			if _, waits := next.(loop.Wait); ended && !waits {
				t.Fatalf("a run that ended does %s", told(next))
			}
			if _, cancels := next.(loop.Cancel); !ended && s.Cancel != nil && !cancels {
				t.Fatalf("a cancelled run does %s", told(next))
			}
			switch rapid.IntRange(0, 9).Draw(t, "world") {
			case 0: // somebody stops it, now and then
				if rapid.IntRange(0, 5).Draw(t, "stop") == 0 {
					say(run.CancelRequested{Reason: "x"})
				}
			case 1: // noise: what was said before is said again
				say(rapid.SampledFrom([]schemas.Event{asked(1, 1), answered(1, 5), failed(1, 1, true, 0), requested("call_1_0"), finished("call_1_0"), call.Failed{Call: "call_1_0"}, call.Late{Call: "call_1_0"}}).Draw(t, "noise"))
			case 2, 3: // a call comes back
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					c := open[i]
					say(rapid.SampledFrom([]schemas.Event{finished(c), call.Failed{Call: c}, call.Refused{Call: c}, call.Cancelled{Call: c}, call.Unknown{Call: c}, call.Held{Call: c}, call.Admitted{Call: c}}).Draw(t, "outcome"))
				}
			case 4, 5: // the model answers
				if n := len(s.Steps); n > 0 && s.Steps[n-1].Completed == nil {
					if rapid.Bool().Draw(t, "fails") {
						say(failed(n, s.Steps[n-1].Requested.Attempt, rapid.Bool().Draw(t, "retryable"), 0))
						break
					}
					var calls []id.Call
					for i := range rapid.IntRange(0, 3).Draw(t, "wants") {
						calls = append(calls, id.Call(fmt.Sprintf("call_%d_%d", n, i)))
					}
					say(answered(n, 40, calls...))
				}
			default: // the loop does its next thing
				switch a := next.(type) {
				case loop.AskModel:
					if most := budgets.Steps; most > 0 && a.Step > most {
						t.Fatalf("step %d of %d", a.Step, most)
					}
					if s.Tokens()+100 > 300 && budgets.Tokens == 300 {
						t.Fatalf("asked with %d tokens used of %d", s.Tokens(), budgets.Tokens)
					}
					say(asked(a.Step, a.Attempt))
				case loop.AskTools:
					if budgets.Calls > 0 && s.CallCount() > budgets.Calls {
						t.Fatalf("%d calls of %d", s.CallCount(), budgets.Calls)
					}
					for _, u := range a.Uses {
						say(requested(u.Call))
						open = append(open, u.Call)
					}
				case loop.Complete:
					say(run.Completed{})
				case loop.Fail:
					say(run.Failed{})
				case loop.Cancel:
					say(run.Cancelled{})
				}
			}
			if ended && s.Ended == nil {
				t.Fatal("an end was taken back")
			}
		}
	})
}

func TestRenderTellsWhatBecameOfCalls(t *testing.T) {
	long := `"` + strings.Repeat("ä", 64<<10) + `"`
	s := fold(agent.Budgets{}, asked(1, 1), answered(1, 0, "call_1", "call_2", "call_3", "call_4", "call_5", "call_6", "call_7"),
		finished("call_1"), call.Refused{Call: "call_2", Code: "denied", Reason: `no "grant"`}, call.Failed{Call: "call_3", Code: "upstream_error", Message: "no answer"},
		call.Cancelled{Call: "call_4", Reason: "revoked"}, call.Unknown{Call: "call_5", Message: "cut off"},
		call.Finished{Call: "call_6", ToolError: true, Body: call.Result{Result: json.RawMessage(long)}})
	r := loop.Render(s, nil)
	paired(t, r)
	results := r.Messages[2].ToolResults
	want := []struct {
		text    string
		isError bool
	}{{"1", false}, {`no \"grant\"`, true}, {"upstream_error", true}, {"revoked", true}, {"do not repeat", true}, {"[shortened: ", true}, {"no result", true}}
	for i, w := range want {
		if got := results[i]; !strings.Contains(got.Text, w.text) || got.IsError != w.isError || len(got.Text) > 65<<10 || !utf8.ValidString(got.Text) {
			t.Errorf("call %d is told as %.200s, error %v", i+1, got.Text, got.IsError)
		}
	}
}

// The model is told that a person edited its arguments. Its own words, and the pairing of call and result, stay.
func TestRenderTellsOfEdits(t *testing.T) {
	long := `{"a":"` + strings.Repeat("ä", 20<<10) + `"}`
	s := fold(agent.Budgets{}, asked(1, 1), answered(1, 0, "call_1", "call_2", "call_3"),
		call.Admitted{Call: "call_1", Edited: 9, Body: call.Args{Args: json.RawMessage(`{"a":2}`)}}, finished("call_1"),
		call.Admitted{Call: "call_2", Edited: 10, Body: call.Args{Args: json.RawMessage(long)}}, call.Failed{Call: "call_2", Code: "upstream_error", Message: "no answer"},
		call.Admitted{Call: "call_3"}, finished("call_3"))
	r := loop.Render(s, nil)
	paired(t, r)
	if got := string(r.Messages[1].ToolCalls[0].Args); got != "{}" {
		t.Errorf("the model is said to have asked for %s", got)
	}
	results := r.Messages[2].ToolResults
	if got := results[0]; !strings.HasPrefix(got.Text, `[A person edited the arguments of this call. It was made with: {"a":2}]`) || !strings.HasSuffix(got.Text, "\n1") || got.IsError {
		t.Errorf("%+v", got)
	}
	if got := results[1]; !strings.Contains(got.Text, "[shortened: ") || !strings.Contains(got.Text, "upstream_error") || !got.IsError || len(got.Text) > 17<<10 || !utf8.ValidString(got.Text) {
		t.Errorf("%.200s, %d bytes", got.Text, len(got.Text))
	}
	if got := results[2]; got.Text != "1" {
		t.Errorf("%+v", got)
	}
}

// One tool that a server named badly must not cost the agent all the others.
func TestRenderOffersWhatProtocolsAllow(t *testing.T) {
	tools := []ask.VisibleTool{{Name: "tickets.find_owner"}, {Name: "tickets." + strings.Repeat("a", 64)}, {Name: strings.Repeat("c", 48) + "." + strings.Repeat("a", 14)},
		{Name: strings.Repeat("c", 48) + "." + strings.Repeat("a", 15)}, {Name: "a.b.c"}}
	tools[0].Types = "declare const tools: {}"
	var names []string
	for _, tool := range loop.Render(fold(agent.Budgets{}), tools).Tools {
		names = append(names, tool.Name)
		if of := loop.ToolOf(tool.Name); of == tools[0].Name && tool.More != tools[0].Types {
			t.Errorf("%s is offered with %q", of, tool.More)
		}
		if !model.ToolName.MatchString(tool.Name) {
			t.Errorf("%s is offered", tool.Name)
		}
	}
	if len(names) != 2 || loop.ToolOf(names[0]) != "tickets.find_owner" || loop.ToolOf(names[1]) != tools[2].Name {
		t.Errorf("%v", names)
	}
}

func TestTaint(t *testing.T) {
	s := loop.New()
	s.Apply(1, run.Created{Taint: []string{"hook_a", "hook_a"}})
	s.ApplyCall(2, call.Finished{Call: "call_1", Taint: []string{"con_x", "hook_a"}})
	s.ApplyCall(3, call.Finished{Call: "call_2"})
	if got := strings.Join(s.Taint, " "); got != "hook_a con_x" {
		t.Errorf("taint %q", got)
	}
	if s.RunSeq != 1 || s.CallSeq != 3 {
		t.Errorf("at %d and %d", s.RunSeq, s.CallSeq)
	}
}

// An operation that the model calls by way of the tool that stands for many is requested as itself, and the model reads
// back what it said.
func TestOperationsByWayOfAnother(t *testing.T) {
	said := model.ToolCall{ID: "t1", Name: "stripe__call_operation", Args: json.RawMessage(`{"tool":"PostCustomers","arguments":{"email":"a@example.com"}}`)}
	use := loop.Use(said)
	if use.Tool != "stripe.PostCustomers" || string(use.Args) != `{"email":"a@example.com"}` || use.Via != "stripe.call_operation" || use.ID != "t1" {
		t.Fatalf("%+v", use)
	}
	s := &loop.State{Created: &run.Created{}, Steps: []loop.Step{{Completed: &run.ModelCompleted{Body: run.Answer{Calls: []run.ToolUse{use}}}}}}
	if got := loop.Render(s, nil).Messages[1].ToolCalls; len(got) != 1 || got[0].Name != said.Name || string(got[0].Args) != string(said.Args) || got[0].ID != said.ID {
		t.Errorf("%+v", got)
	}
	// What names no operation goes to the broker as it is, which says what is wrong.
	for _, args := range []string{`{"tool":1}`, `[]`, `{"tool":"call_operation","arguments":{}}`, ``} {
		if use := loop.Use(model.ToolCall{Name: "stripe__call_operation", Args: json.RawMessage(args)}); use.Via != "" || use.Tool != "stripe.call_operation" {
			t.Errorf("%s: %+v", args, use)
		}
	}
}
