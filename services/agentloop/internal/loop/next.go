package loop

import (
	"fmt"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
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
