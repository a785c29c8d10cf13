// Package loop is the pure heart of the agent loop: what a run's events say, and the one thing to do next.
package loop

import (
	"slices"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/run"
)

// State is a run as far as its events go. What an event says that the run's earlier events do not allow is passed
// over: the fold never leaves the states of the package comment of schemas/run.
type State struct {
	Created *run.Created
	Steps   []Step
	Calls   calls.Set
	Ended   schemas.Event // completed, failed or cancelled
	Cancel  *run.CancelRequested

	RunSeq  uint64 // of the run's last event: what the next is appended after
	CallSeq uint64 // of the last event of its calls
	Taint   []string
}

// Step is one turn of the model and the calls that it asked for.
type Step struct {
	Requested *run.ModelRequested // the last attempt
	Failed    *run.ModelFailed    // of the last attempt
	Completed *run.ModelCompleted
}

// New is the state before anything happened.
func New() *State { return &State{Calls: calls.Set{}} }

// Apply takes the run's next event.
func (s *State) Apply(seq uint64, ev schemas.Event) {
	s.RunSeq = seq
	switch ev := ev.(type) {
	case run.Created:
		if s.Created == nil {
			s.Created = &ev
			s.taint(ev.Taint)
		}
	case run.ModelRequested:
		switch {
		case ev.Step == len(s.Steps)+1:
			s.Steps = append(s.Steps, Step{Requested: &ev})
		case ev.Step == len(s.Steps) && s.step().Completed == nil:
			s.step().Requested, s.step().Failed = &ev, nil
		}
	case run.ModelFailed:
		if ev.Step == len(s.Steps) && s.step().Completed == nil {
			s.step().Failed = &ev
		}
	case run.ModelCompleted:
		if ev.Step == len(s.Steps) && s.step().Completed == nil {
			s.step().Completed, s.step().Failed = &ev, nil
		}
	case run.CancelRequested:
		s.Cancel = &ev
	case run.Completed, run.Failed, run.Cancelled:
		if s.Ended == nil {
			s.Ended = ev
		}
	}
}

// ApplyCall takes the next event of the run's calls.
func (s *State) ApplyCall(seq uint64, ev schemas.Event) {
	s.CallSeq = seq
	s.Calls.Apply(seq, ev)
	if f, ok := ev.(call.Finished); ok {
		s.taint(f.Taint)
	}
}

func (s *State) taint(origins []string) {
	for _, o := range origins {
		if !slices.Contains(s.Taint, o) {
			s.Taint = append(s.Taint, o)
		}
	}
}

func (s *State) step() *Step { return &s.Steps[len(s.Steps)-1] }

// Tokens is what the run's answers have used.
func (s *State) Tokens() (n int) {
	for _, step := range s.Steps {
		if step.Completed != nil {
			n += step.Completed.InputTokens + step.Completed.OutputTokens
		}
	}
	return n
}

// CallCount is how many calls the run's answers, or its script and that, have asked for.
func (s *State) CallCount() (n int) {
	if s.Created != nil && s.Created.Body.Script != "" {
		return len(s.Calls)
	}
	for _, step := range s.Steps {
		if step.Completed != nil {
			n += len(step.Completed.Body.Calls)
		}
	}
	return n
}
