package agentloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
	"github.com/execwarden/execwarden/services/agentloop/internal/model"
)

// think makes a step's model call. The request is durable before it is made; a crash while the model answers makes
// the request come again, and the model is asked once more.
func (s *Service) think(ctx context.Context, h bus.Heard, req run.ModelRequested) error {
	var request model.Request
	var who agent.Defined
	stale := false
	err := s.runs.use(ctx, h.At.Tenant, req.Run, func(state *loop.State) error {
		if n := len(state.Steps); state.Ended != nil || state.Cancel != nil || state.Created == nil || n != req.Step ||
			state.Steps[n-1].Completed != nil || state.Steps[n-1].Requested.Attempt != req.Attempt || state.Steps[n-1].Failed != nil {
			stale = true
			return nil
		}
		who = state.Created.Agent
		var err error
		request, err = s.render(ctx, h.At.Tenant, req.Run, state)
		return err
	})
	if err != nil {
		return err
	}
	if stale {
		return s.advance(ctx, h, req.Run) // answered at an earlier hearing, or cancelled since
	}
	wanted, done := s.whileWanted(ctx, h.At.Tenant, req.Run)
	defer done()
	if err := s.pauseUntil(wanted, req.NotBefore); err != nil && ctx.Err() != nil {
		return err
	}
	answer, err := s.askModel(wanted, h.At.Tenant, who, req.Run, request)
	switch {
	case err != nil && ctx.Err() != nil:
		return problem.Wrap(err, problem.Unavailable, "the model call was cut off") // the process is ending
	case err != nil && errors.Is(context.Cause(wanted), errUnwanted):
		return s.advance(ctx, h, req.Run)
	case waits(err):
		return err
	}
	return s.runs.use(ctx, h.At.Tenant, req.Run, func(state *loop.State) error {
		n := len(state.Steps)
		if state.Ended != nil || n != req.Step || state.Steps[n-1].Completed != nil || state.Steps[n-1].Requested.Attempt != req.Attempt {
			return nil
		}
		var ev schemas.Event
		if err != nil {
			ev = failed(req, err)
		} else {
			ev = completed(req, answer)
		}
		saidErr := s.say(ctx, h, req.Run, state.RunSeq, ev)
		if problem.CodeOf(saidErr) == problem.Conflict {
			// Something else was said of the run meanwhile, a cancellation for one. Hear the request again and see.
			return problem.Wrap(saidErr, problem.Busy, "the run moved on while the model answered")
		}
		return saidErr
	})
}

func (s *Service) render(ctx context.Context, tenant id.Tenant, runID id.Run, state *loop.State) (model.Request, error) {
	tools, err := rpc.Ask[ask.VisibleTools](ctx, s.deps.Conn, schemas.Toolbroker, "tools_visible",
		rpc.Caller{Tenant: tenant, Actor: actor}, ask.Visibility{Agent: state.Created.Agent.Agent, Run: runID, As: ask.Folded})
	if err != nil {
		return model.Request{}, err
	}
	return loop.Render(state, tools.Tools), nil
}

// requestDigest is the SHA-256 of the request as it would be sent now.
func (s *Service) requestDigest(ctx context.Context, tenant id.Tenant, runID id.Run, state *loop.State) (string, error) {
	request, err := s.render(ctx, tenant, runID, state)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("model request: %w", err)
	}
	return permit.Digest(raw), nil
}

func (s *Service) askModel(ctx context.Context, tenant id.Tenant, who agent.Defined, runID id.Run, request model.Request) (model.Answer, error) {
	provider, err := s.provider(ctx, tenant, who)
	if err != nil {
		return model.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ModelTimeout)
	defer cancel()
	began := s.now()
	live := s.live(tenant, runID)
	answer, err := provider.Complete(ctx, request, live)
	result := "ok"
	if err != nil {
		result = string(problem.CodeOf(err))
	}
	s.metrics.models.WithLabelValues(who.Model.Protocol, result).Observe(s.now().Sub(began).Seconds())
	s.metrics.tokens.WithLabelValues("input").Add(float64(answer.Usage.InputTokens))
	s.metrics.tokens.WithLabelValues("output").Add(float64(answer.Usage.OutputTokens))
	return answer, err
}

func (s *Service) provider(ctx context.Context, tenant id.Tenant, who agent.Defined) (model.Provider, error) {
	key, err := s.vault.Get(ctx, tenant, keyName(who.Agent))
	if err != nil && problem.CodeOf(err) != problem.NotFound { // a local model asks for no key
		return nil, err
	}
	transport, err := s.models.To(who.Model.URL, who.Model.Private)
	if err != nil {
		return nil, err
	}
	return model.New(model.Config{
		Protocol: model.Protocol(who.Model.Protocol), BaseURL: who.Model.URL, Model: who.Model.Name, Key: model.Key(key.Reveal()),
	}, &http.Client{Transport: transport})
}

// live tells viewers what the model says while it says it. Nothing of it is stored: the whole answer is.
func (s *Service) live(tenant id.Tenant, runID id.Run) func(string) {
	subject := bus.LiveSubject(string(tenant) + "." + string(runID) + ".up")
	n := 0
	return func(delta string) {
		n++
		raw, err := json.Marshal(struct {
			N     int    `json:"n"`
			Delta string `json:"delta"`
		}{n, delta})
		if err == nil {
			_ = s.deps.Conn.NC.Publish(subject, raw) // a viewer sees the gap in n
		}
	}
}

// errUnwanted is the cause with which a cancelled run's model call ends.
var errUnwanted = errors.New("the run was cancelled")

// lookEvery is how often a run that waits for its model is looked at.
const lookEvery = time.Second

// whileWanted gives a context that ends when the run is cancelled. The event that says so is heard only after the one
// that is being handled, which may wait for minutes.
func (s *Service) whileWanted(ctx context.Context, tenant id.Tenant, runID id.Run) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			_ = s.runs.use(ctx, tenant, runID, func(state *loop.State) error { // looked at again in a moment
				if state.Cancel != nil || state.Ended != nil {
					cancel(errUnwanted)
				}
				return nil
			})
		}
	})
	return ctx, func() { cancel(nil); looking.Wait() }
}

// waits says whether there is no answer because of a dependency of ours, not of the model: that is tried again.
func waits(err error) bool {
	var model *model.Failure
	return err != nil && !errors.As(err, &model) && executor.Later(err)
}

func (s *Service) pauseUntil(ctx context.Context, at time.Time) error {
	wait := at.Sub(s.now())
	if at.IsZero() || wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return problem.Wrap(ctx.Err(), problem.Unavailable, "cut off while waiting to ask the model again")
	}
}

func failed(req run.ModelRequested, err error) run.ModelFailed {
	d := problem.DetailOf(err)
	f := run.ModelFailed{Run: req.Run, Step: req.Step, Attempt: req.Attempt, Code: string(d.Code), Message: d.Message}
	var failure *model.Failure
	if errors.As(err, &failure) {
		f.Retryable, f.RetryAfter = failure.Retryable, int(failure.RetryAfter.Milliseconds())
	}
	return f
}

func completed(req run.ModelRequested, a model.Answer) run.ModelCompleted {
	c := run.ModelCompleted{Run: req.Run, Step: req.Step, InputTokens: int(a.Usage.InputTokens), OutputTokens: int(a.Usage.OutputTokens),
		Body: run.Answer{Text: a.Text, Raw: a.Raw}}
	for i, t := range a.ToolCalls {
		use := loop.Use(t)
		use.Call = id.Derive[id.Call](string(req.Run), strconv.Itoa(req.Step), strconv.Itoa(i))
		c.Body.Calls = append(c.Body.Calls, use)
	}
	return c
}
