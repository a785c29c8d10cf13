package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// Defaults of a run's budgets.
const (
	DefaultSteps  = 50
	DefaultCalls  = 200
	DefaultTokens = 1_000_000
)

// maxAttempts is how often one step's model call is tried.
const maxAttempts = 6

// maxPause is the longest that a run waits to ask the model again.
const maxPause = 15 * time.Minute

// Action is the one next thing that a run does.
type Action interface{ action() }

// The actions.
type (
	// Wait: somebody else has the custody: a call's executor, a person, or whoever hears the model request.
	Wait struct{}
	// AskModel appends a request for a step's model call, to be made no earlier than NotBefore.
	AskModel struct {
		Step, Attempt int
		NotBefore     time.Time
	}
	// AskTools requests calls that the last answer asked for and that are not requested yet.
	AskTools struct{ Uses []run.ToolUse }
	// Complete ends the run with the last answer.
	Complete struct{ Text string }
	// Fail ends the run without a result.
	Fail struct {
		Code    problem.Code
		Message string
	}
	// Cancel ends the run because a person wanted it to.
	Cancel struct{ Reason string }
)

func (Wait) action()     {}
func (AskModel) action() {}
func (AskTools) action() {}
func (Complete) action() {}
func (Fail) action()     {}
func (Cancel) action()   {}

// Next decides. It is the same for the happy path and for a run found after a crash.
func Next(s *State, now time.Time) Action {
	switch {
	case s.Created == nil || s.Ended != nil:
		return Wait{}
	case s.Cancel != nil:
		return Cancel{s.Cancel.Reason}
	case s.Created.Body.Script != "":
		return s.runScript()
	case len(s.Steps) == 0:
		return s.askModel(1, 1, time.Time{})
	}
	step := s.Steps[len(s.Steps)-1]
	n := len(s.Steps)
	if step.Completed == nil {
		return s.afterFailure(step, now)
	}
	answer := step.Completed.Body
	if len(answer.Calls) == 0 {
		return Complete{answer.Text}
	}
	var missing []run.ToolUse
	open := 0
	for _, use := range answer.Calls {
		state := s.Calls[use.Call]
		switch {
		case state == nil || state.Requested == nil && state.Outcome == nil:
			missing = append(missing, use)
		case state.Outcome == nil:
			open++
		}
	}
	switch {
	case len(missing) > 0:
		if max := orDefault(s.budgets().Calls, DefaultCalls); s.CallCount() > max {
			return Fail{problem.BudgetExhausted, fmt.Sprintf("the run's %d calls are used up", max)}
		}
		return AskTools{missing}
	case open > 0:
		return Wait{}
	}
	return s.askModel(n+1, 1, time.Time{})
}

// runScript is the whole of a run that a person wrote: one call, and the run ends as it does.
func (s *State) runScript() Action {
	c := id.Derive[id.Call](string(s.Created.Run), "script")
	state := s.Calls[c]
	switch {
	case state == nil || state.Requested == nil && state.Outcome == nil:
		args, err := json.Marshal(struct {
			Source string          `json:"source"`
			Input  json.RawMessage `json:"input,omitempty"`
		}{s.Created.Body.Script, s.Created.Body.Input})
		if err != nil {
			return Fail{problem.Internal, "the script cannot be written as JSON"}
		}
		return AskTools{[]run.ToolUse{{Call: c, Tool: "runtime.run_javascript", Args: args}}}
	case state.Outcome == nil:
		return Wait{}
	}
	switch o := state.Outcome.(type) {
	case call.Finished:
		return ofScript(o)
	case call.Refused:
		return Fail{problem.Code(o.Code), o.Reason}
	case call.Failed:
		return Fail{problem.Code(o.Code), o.Message}
	case call.Cancelled:
		return Fail{problem.Cancelled, o.Reason}
	case call.Unknown:
		return Fail{problem.Unknown, o.Message}
	}
	return Fail{problem.Internal, "the script ended in a way that this version does not know"}
}

// ofScript ends a run with its script's value, or with why there is none.
func ofScript(o call.Finished) Action {
	var r struct {
		Value json.RawMessage `json:"value"`
		Error struct {
			Code    problem.Code `json:"code"`
			Message string       `json:"message"`
			Line    int          `json:"line"`
			Col     int          `json:"col"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(o.Body.Result, &r); {
	case err != nil:
		return Fail{problem.Internal, "the script's result cannot be read"}
	case o.ToolError && r.Error.Line > 0:
		return Fail{r.Error.Code, fmt.Sprintf("%s at line %d, column %d", r.Error.Message, r.Error.Line, r.Error.Col)}
	case o.ToolError:
		return Fail{r.Error.Code, r.Error.Message}
	}
	return Complete{string(r.Value)}
}

// afterFailure decides about a step whose model call is not answered.
func (s *State) afterFailure(step Step, now time.Time) Action {
	f := step.Failed
	if f == nil || f.Attempt < step.Requested.Attempt {
		return Wait{} // whoever hears the request makes the call
	}
	if !f.Retryable || f.Attempt >= maxAttempts {
		return Fail{problem.Code(f.Code), "the model: " + f.Message}
	}
	pause := max(time.Duration(f.RetryAfter)*time.Millisecond, time.Second<<(f.Attempt-1))
	if pause > maxPause {
		return Fail{problem.Code(f.Code), fmt.Sprintf("the model asks to wait %s, longer than a run waits: %s", pause, f.Message)}
	}
	return s.askModel(f.Step, f.Attempt+1, now.Add(pause))
}

// askModel reserves before it asks: a step that the budget may not cover is not begun.
func (s *State) askModel(step, attempt int, notBefore time.Time) Action {
	b := s.budgets()
	if most := orDefault(b.Steps, DefaultSteps); step > most {
		return Fail{problem.BudgetExhausted, fmt.Sprintf("the run's %d steps are used up", most)}
	}
	most := orDefault(b.Tokens, DefaultTokens)
	if used, reserve := s.Tokens(), s.MaxOutput(); used+reserve > most {
		return Fail{problem.BudgetExhausted, fmt.Sprintf("the run has used %d of its %d tokens, and the next answer may take %d", used, most, reserve)}
	}
	return AskModel{Step: step, Attempt: attempt, NotBefore: notBefore}
}

// MaxOutput is how many tokens one answer may have.
func (s *State) MaxOutput() int { return orDefault(s.Created.Agent.Model.MaxOutputTokens, 4096) }

func (s *State) budgets() agent.Budgets { return s.Created.Agent.Budgets }

func orDefault(n, standard int) int {
	if n > 0 {
		return n
	}
	return standard
}
