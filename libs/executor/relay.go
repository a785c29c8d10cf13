package executor

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
)

// Bounds of what is passed between an MCP server and the client of a call, in messages of one call and bytes of one.
const (
	maxRelayed      = 10_000
	maxRelayedBytes = 256 << 10
)

// MaxAnswer is the largest answer of a client, in bytes as it is passed on: in JSON, with what is around it.
const MaxAnswer = maxRelayedBytes + 1<<10

// Relay passes what an MCP server says during a call on to the call's client, as it came and in order.
type Relay struct {
	gate *Gate
	work *Work
	pace pace // guarded by the work's tally
}

// Relay is for calls that a client made over MCP.
func (g *Gate) Relay(w *Work) *Relay {
	if w.said == nil {
		w.said = &tally{}
	}
	return &Relay{gate: g, work: w, pace: newPace()}
}

// Say passes a notification on. What is over the bounds is left out and counted, so that the client's end sees the gap.
func (r *Relay) Say(method string, params json.RawMessage) {
	s := r.work.said
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.n > maxRelayed || len(params) > maxRelayedBytes || !r.pace.allow(len(params), r.gate.now()) {
		return
	}
	if subject, raw, err := r.work.news(s.n, call.News{Method: method, Params: params}); err == nil {
		_ = r.gate.conn.NC.Publish(subject, raw) // a reader sees the gap in n
	}
}

// Relayed is an answer on its way back: one of the two.
type Relayed struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Problem *problem.Detail `json:"problem,omitempty"`
}

// Ask asks the call's client, and waits for its answer: of whoever follows the call for the client now, or an Answer. ask is the
// number of the question's call.asked. Problems: unavailable (nobody speaks for the client any more), and what the client's end says.
func (r *Relay) Ask(ctx context.Context, ask int, method string, params json.RawMessage) (json.RawMessage, error) {
	s := r.work.said
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if len(params) > maxRelayedBytes {
		return nil, problem.New(problem.TooLarge, "what the server asks is over %d bytes", maxRelayedBytes)
	}
	subject, raw, err := r.work.news(n, call.News{Method: method, Params: params, Ask: ask})
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "a question cannot be written")
	}
	later, forget := r.gate.questions.wait(question{r.work.Tenant, r.work.Admitted.Call, ask})
	defer forget()
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeout(ctx, bus.AnswerWithin)
	defer cancel()
	now := make(chan Relayed, 1)
	failed := make(chan error, 1)
	asking.Go(func() {
		m, err := r.gate.conn.NC.RequestWithContext(ctx, subject, raw)
		if err != nil {
			failed <- problem.Wrap(err, problem.Unavailable, "the client did not answer")
			return
		}
		var answer Relayed
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			failed <- problem.Wrap(err, problem.Internal, "an answer cannot be read")
			return
		}
		now <- answer
	})
	var answer Relayed
	select {
	case err := <-failed:
		return nil, err
	case answer = <-now:
	case answer = <-later:
	}
	if answer.Problem != nil {
		return nil, answer.Problem.Err()
	}
	return answer.Result, nil
}
