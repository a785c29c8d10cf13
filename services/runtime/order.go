package runtime

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// order is what the stream has of one script: what it asked for, and in which order that was answered. Answers reach
// the script in stream order and never otherwise, in its first life as in every later one: so a script that is run
// again over its record takes the path that it took.
type order struct {
	s *Service
	w *executor.Work

	mu      sync.Mutex
	at      uint64 // of the last event that was read
	begun   uint64 // the same when this life began: what is older was answered, or could have been, in an earlier one
	calls   calls.Set
	order   []answerID // in stream order
	ordered map[answerID]bool
	asked   map[answerID]bool // by this life
	was     map[int]string    // what was asked for and is no call, by its number
	ran     bool              // a worker had the script, in this life or an earlier one
	given   int               // how many of order this life was given
	moved   chan struct{}     // closed when order or given grows
	movedAt time.Time
}

// answerID names an answer: of a call by the call's id, of a fetch or a search by its number.
type answerID string

func answerAt(seq int) answerID { return answerID(strconv.Itoa(seq)) }

func openOrder(ctx context.Context, s *Service, w *executor.Work) (*order, error) {
	r := &order{s: s, w: w, at: w.Admitted.Requested - 1, calls: calls.Set{}, ordered: map[answerID]bool{}, asked: map[answerID]bool{}, was: map[int]string{}, moved: make(chan struct{}), movedAt: time.Now()}
	err := r.look(ctx)
	r.begun = r.at
	return r, err
}

// nested is the id of the script's call with a number: a script that is run again asks for the same call.
func (r *order) nested(seq int) id.Call {
	return id.Derive[id.Call](string(r.w.Admitted.Call), strconv.Itoa(seq))
}

// look reads on.
func (r *order) look(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e, err := range r.s.deps.Log.Read(ctx, schemas.Activity, schemas.OfRun(r.w.Tenant, r.w.Admitted.Run), r.at+1) {
		if err != nil {
			return err
		}
		r.at = e.Seq
		ev, err := e.Envelope.Decode()
		if err != nil {
			continue
		}
		switch ev := ev.(type) {
		case script.Started:
			r.ran = r.ran || ev.Call == r.w.Admitted.Call
		case script.Fetching:
			if ev.Call == r.w.Admitted.Call {
				r.was[ev.Seq] = aFetch
			}
		case script.Fetched:
			if ev.Call == r.w.Admitted.Call {
				r.was[ev.Seq] = aFetch
				r.answered(answerAt(ev.Seq))
			}
		case script.Searched:
			if ev.Call == r.w.Admitted.Call {
				r.was[ev.Seq] = aSearch
				r.answered(answerAt(ev.Seq))
			}
		default:
			r.calls.Apply(e.Seq, ev)
			if state := r.calls[calls.Of(ev)]; state != nil && state.Outcome != nil && state.Requested != nil && state.Requested.Parent == r.w.Admitted.Call {
				r.answered(answerID(calls.Of(ev)))
			}
		}
	}
	return nil
}

// answered puts an answer behind those before it. The caller holds mu.
func (r *order) answered(a answerID) {
	if !r.ordered[a] {
		r.ordered[a] = true
		r.order = append(r.order, a)
		r.move()
	}
}

func (r *order) move() {
	close(r.moved)
	r.moved, r.movedAt = make(chan struct{}), time.Now()
}

// gave hears that an answer reached the worker.
func (r *order) gave(seq int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given < len(r.order) && (r.order[r.given] == answerAt(seq) || r.order[r.given] == answerID(r.nested(seq))) {
		r.given++
		r.move()
	}
}

// ask notes that the script asks for a call, and gives what is recorded of that. Problems: a divergence.
func (r *order) ask(seq int, tool, digest string) (calls.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.calls[r.nested(seq)]
	if was := r.was[seq]; was != "" {
		return calls.State{}, diverged("request %d was %s before, and is a call of %s now", seq, was, tool)
	}
	r.asked[answerID(r.nested(seq))] = true
	if state == nil || state.Requested == nil {
		return calls.State{}, nil
	}
	if state.Requested.Tool != tool || state.Requested.ArgsDigest != digest {
		return calls.State{}, diverged("request %d was a call of %s before, and is one of %s with %s arguments now", seq, state.Requested.Tool, tool, other(state.Requested.ArgsDigest == digest))
	}
	return *state, nil
}

func other(same bool) string {
	if same {
		return "the same"
	}
	return "other"
}

// What a script asks for besides calls, in the words of a divergence.
const (
	aFetch  = "a fetch"
	aSearch = "a search of tools"
	aKeep   = "an operation on artifacts"
)

// askElse notes that the script asks for something else than a call. Problems: a divergence.
func (r *order) askElse(seq int, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.calls[r.nested(seq)]; state != nil && state.Requested != nil {
		return diverged("request %d was a call of %s before, and is %s now", seq, state.Requested.Tool, what)
	}
	if was := r.was[seq]; was != "" && was != what {
		return diverged("request %d was %s before, and is %s now", seq, was, what)
	}
	r.asked[answerAt(seq)] = true
	return nil
}

// refused notes that the worker itself refused a request. Problems: a divergence when it is on record that there was one,
// which the worker lets through again: the script tried something else at that place, and what comes next would not find
// its own.
func (r *order) refused(seq int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := r.was[seq]
	if state := r.calls[r.nested(seq)]; state != nil && state.Requested != nil {
		what = "a call of " + state.Requested.Tool
	}
	if what == "" {
		return nil
	}
	return diverged("request %d was %s before, and is one that the script may not make now", seq, what)
}

// reached is what the script called and whether it fetched, in an earlier life. It is to be there for this one too, so
// that the worker lets it through and what is recorded of it is found.
func (r *order) reached() (tools []string, fetch bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, state := range r.calls {
		if state.Requested != nil && state.Requested.Parent == r.w.Admitted.Call {
			tools = append(tools, state.Requested.Tool)
		}
	}
	for _, was := range r.was {
		fetch = fetch || was == aFetch
	}
	return tools, fetch
}

// inTurn gives what is recorded of a request when its turn has come.
func inTurn[A any](ctx context.Context, r *order, seq int, give func() (A, error)) (none A, err error) {
	if err := r.look(ctx); err != nil {
		return none, sandbox.Abort(err)
	}
	if err := r.turn(ctx, answerAt(seq), nil, func() error { return nil }); err != nil {
		return none, err
	}
	return give()
}

// diverged ends a script whose record is another one's. What it did so far is in the record; it does nothing more.
func diverged(format string, args ...any) error {
	return sandbox.Abort(&sandbox.ScriptError{Code: sandbox.CodeDivergence, Message: "the script was run again over what is recorded of it, and went another way: " +
		fmt.Sprintf(format, args...) + ". What it did before stays done; nothing more was. Look at its calls, then run a new script for what is left"})
}

// strayAfter is how long an answer that comes first in the record may wait for the script to ask for it, while others
// wait for it. Only a script that a timer holds up takes any time.
const strayAfter = time.Minute

// turn waits until an answer is next, wherever it comes from: wake says that it is worth to look. It gives up when
// waiting says why.
func (r *order) turn(ctx context.Context, a answerID, wake <-chan bus.Hint, waiting func() error) error {
	poll := time.NewTicker(pollOutcome)
	defer poll.Stop()
	for {
		r.mu.Lock()
		next, moved := r.given < len(r.order) && r.order[r.given] == a, r.moved
		stray := r.given < len(r.order) && !r.asked[r.order[r.given]] && time.Since(r.movedAt) > strayAfter
		known := r.ordered[a]
		r.mu.Unlock()
		switch {
		case next:
			return nil
		case stray:
			return diverged("it does not ask for what it was answered first")
		case !known:
			if err := waiting(); err != nil {
				return err
			}
		}
		select {
		case <-moved:
			continue
		case <-wake:
		case <-poll.C:
			if known {
				continue // others come first, and whoever waits for them looks
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.look(ctx); err != nil {
			return sandbox.Abort(err)
		}
	}
}

// state is a call as far as it was read.
func (r *order) state(c id.Call) calls.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.calls[c]; s != nil {
		return *s
	}
	return calls.State{}
}

// stands says whether what was answered in an earlier life may be answered again: not when what it rested on is no
// more.
func (r *order) stands(state calls.State) error {
	if state.Admitted == nil || state.OutcomeSeq > r.begun {
		return nil // decided in this life, or the outcome is that it was not allowed
	}
	if _, done := state.Outcome.(call.Finished); done && !r.s.gate.Stands(r.w.Tenant, *state.Admitted) {
		return problem.New(problem.Denied, "the grant or the connection of this call is gone since it was made; what it answered is not given again")
	}
	return nil
}
