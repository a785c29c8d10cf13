package loop_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
)

// A run of a person's script makes one call, whatever else is said, and ends as that does.
func TestScriptRun(t *testing.T) {
	c := id.Derive[id.Call]("run_1", "script")
	request := call.Requested{Call: c}
	gave := func(toolError bool, result string) schemas.Event {
		return call.Finished{Call: c, ToolError: toolError, Body: call.Result{Result: json.RawMessage(result)}}
	}
	for name, x := range map[string]struct {
		events []schemas.Event
		want   loop.Action
	}{
		"started":               {nil, loop.AskTools{Uses: []run.ToolUse{{Call: c, Tool: "runtime.run_javascript", Args: json.RawMessage(`{"source":"return 1"}`)}}}},
		"requested":             {[]schemas.Event{request}, loop.Wait{}},
		"held":                  {[]schemas.Event{request, call.Held{Call: c}}, loop.Wait{}},
		"a call of it ended":    {[]schemas.Event{request, call.Requested{Call: "call_x", Parent: c}, call.Finished{Call: "call_x"}}, loop.Wait{}},
		"a value":               {[]schemas.Event{request, gave(false, `{"value":{"a":1}}`)}, loop.Complete{Text: `{"a":1}`}},
		"thrown":                {[]schemas.Event{request, gave(true, `{"error":{"code":"exception","message":"m","line":2,"col":3}}`)}, loop.Fail{Code: "exception", Message: "m at line 2, column 3"}},
		"thrown nowhere":        {[]schemas.Event{request, gave(true, `{"error":{"code":"timeout","message":"m"}}`)}, loop.Fail{Code: problem.Timeout, Message: "m"}},
		"nonsense":              {[]schemas.Event{request, gave(false, `7`)}, loop.Fail{Code: problem.Internal, Message: "the script's result cannot be read"}},
		"refused":               {[]schemas.Event{request, call.Refused{Call: c, Code: "denied", Reason: "r"}}, loop.Fail{Code: problem.Denied, Message: "r"}},
		"failed":                {[]schemas.Event{request, call.Failed{Call: c, Code: "invalid", Message: "m"}}, loop.Fail{Code: problem.Invalid, Message: "m"}},
		"cancelled by a revoke": {[]schemas.Event{request, call.Cancelled{Call: c, Reason: "r"}}, loop.Fail{Code: problem.Cancelled, Message: "r"}},
		"unknown":               {[]schemas.Event{request, call.Unknown{Call: c, Message: "m"}}, loop.Fail{Code: problem.Unknown, Message: "m"}},
		"told to stop":          {[]schemas.Event{request, run.CancelRequested{Reason: "r"}}, loop.Cancel{Reason: "r"}},
	} {
		s := loop.New()
		s.Apply(1, run.Created{Run: "run_1", Body: run.Prompt{Text: "report.ts", Script: "return 1"}})
		apply(s, 2, x.events...)
		if got := loop.Next(s, now); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

func TestScriptRunWithInput(t *testing.T) {
	s := loop.New()
	s.Apply(1, run.Created{Run: "run_1", Body: run.Prompt{Script: "return input.a", Input: json.RawMessage(`{"a":"\u003c"}`)}})
	asks, _ := loop.Next(s, now).(loop.AskTools)
	if len(asks.Uses) != 1 || string(asks.Uses[0].Args) != `{"source":"return input.a","input":{"a":"\u003c"}}` {
		t.Errorf("%s", asks.Uses)
	}
}
