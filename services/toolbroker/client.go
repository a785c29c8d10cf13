package toolbroker

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// client is the MCP client of a call, nil when it came from elsewhere.
func (s *Service) client(work context.Context, w *executor.Work) *upstream.Client {
	if w.Requested.Client == nil {
		return nil
	}
	relay := s.gate.Relay(w)
	var asks atomic.Int64
	return &upstream.Client{
		Client: *w.Requested.Client, Conversation: w.Requested.Run, Input: w.Requested.Body.Input, Say: relay.Say,
		Ask: func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			ctx, cancel := context.WithCancel(ctx) // of the session, which outlives the call
			defer cancel()
			defer context.AfterFunc(work, cancel)()
			return s.askClient(ctx, w, relay, int(asks.Add(1)), method, params)
		},
	}
}

// maxAsks is how often the server may ask during one call.
const maxAsks = 32

// askClient passes on what a server asks the client of a call, and the answer. Both are recorded: the question before
// anybody is asked, the answer before the server has it.
func (s *Service) askClient(ctx context.Context, w *executor.Work, relay *executor.Relay, n int, method string, params json.RawMessage) (json.RawMessage, error) {
	if n > maxAsks {
		return nil, problem.New(problem.Busy, "the server asked %d times during one call, which is the most", maxAsks)
	}
	asked := call.Asked{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Ask: n, Method: method, Body: call.Question{Params: params}}
	refusal := s.mayAsk(w, method, params)
	if refusal != nil {
		asked.Refused = problem.DetailOf(refusal).Message
	}
	if err := s.sayOf(ctx, w, asked.Kind()+strconv.Itoa(n), eventlog.Draft{Event: asked}); err != nil {
		return nil, err
	}
	// A crash here leaves a question that nobody answered: the call is cut off with it.
	if refusal != nil {
		return nil, refusal
	}
	raw, err := relay.Ask(ctx, n, method, params)
	answered := call.Answered{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Ask: n, Body: call.Reply{Result: raw}}
	if err != nil {
		answered.Code = string(problem.CodeOf(err))
	}
	if err := s.sayOf(context.WithoutCancel(ctx), w, answered.Kind()+strconv.Itoa(n), eventlog.Draft{Event: answered}); err != nil {
		return nil, err
	}
	return raw, err
}

// askedByResult records what a server asks by its result (MCP 2026-07-28, multi round-trip requests), before the client has it.
// What may not be asked makes the result none. The answers come with the client's next call.
func (s *Service) askedByResult(ctx context.Context, w *executor.Work, r upstream.Result) error {
	if w.Requested.Client == nil {
		return nil
	}
	// Read to the letter, as clients do: a struct would take "Method" for "method", and another question for the one that is asked.
	var result map[string]json.RawMessage
	if json.Unmarshal(r.Content, &result) != nil || result["inputRequests"] == nil {
		return nil
	}
	var requests map[string]map[string]json.RawMessage
	if json.Unmarshal(result["inputRequests"], &requests) != nil {
		return problem.New(problem.Upstream, "what the server asks for cannot be read")
	}
	if len(requests) > maxAsks {
		return problem.New(problem.TooLarge, "the server asks for %d things at once, and %d is the most", len(requests), maxAsks)
	}
	var refused error
	for i, name := range slices.Sorted(maps.Keys(requests)) {
		var method string
		if json.Unmarshal(requests[name]["method"], &method) != nil {
			return problem.New(problem.Upstream, "what the server asks for has no method")
		}
		params := requests[name]["params"]
		asked := call.Asked{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Ask: i + 1, Method: method, Body: call.Question{Params: params}}
		if refusal := s.mayAsk(w, method, params); refusal != nil {
			asked.Refused, refused = problem.DetailOf(refusal).Message, refusal
		}
		if err := s.sayOf(ctx, w, asked.Kind()+strconv.Itoa(i+1), eventlog.Draft{Event: asked}); err != nil {
			return err
		}
	}
	return refused
}

func (s *Service) sayOf(ctx context.Context, w *executor.Work, which string, d eventlog.Draft) error {
	d.Tenant, d.Key, d.Run, d.Actor, d.Correlation = w.Tenant, string(w.Admitted.Run), w.Admitted.Run, actor, w.Correlation
	d.ID = id.Derive[id.Event](string(w.Tenant), string(w.Admitted.Call), which, strconv.FormatUint(w.Seq, 10))
	_, err := s.deps.Log.Append(ctx, d)
	return err
}

// mayAsk says whether a server may ask the client. Its model is the client's, and costs: sampling needs a grant that names
// it. The others a person at the client answers, or the client itself.
func (s *Service) mayAsk(w *executor.Work, method string, params json.RawMessage) error {
	if method != connection.Sample {
		return nil
	}
	known := s.state.Known(w.Tenant, w.Requested.Agent, connectionOf(w.Requested.Tool)+"."+connection.Sample)
	args, err := permit.CanonicalArgs(params)
	if err != nil {
		return err
	}
	d := policy.Decide(known, policy.Request{Run: w.Requested.Run, Args: args, Tainted: true}, &s.conditions, s.now())
	if d.Verdict != policy.Admit {
		return problem.New(problem.Denied, "no grant lets this server ask the client's model (sampling/createMessage): %s", d.Reason)
	}
	return nil
}
