package agentloop

import (
	"bytes"
	"context"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/session"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
)

// The longest prompt, script and name of a script, in bytes.
const (
	maxPrompt = 256 << 10
	maxScript = 64 << 10 // as the runtime takes it
	maxInput  = 64 << 10 // of a script
	maxName   = 256
)

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(append(s.vault.Methods(s.keepsOf, s.secretsOf),
		rpc.On("run_start", s.startRun),
		rpc.On("run_cancel", s.cancelRun),
		rpc.On("model_key_set", s.setModelKey),
	)...)
}

// startRun makes a run. It is answered when the run is durable; from then on it goes on by itself.
func (s *Service) startRun(ctx context.Context, who rpc.Caller, q ask.StartRun) (ask.Started, error) {
	again := q.Run != "" // maybe
	if !again {
		q.Run = id.New[id.Run]()
	}
	_, errRun := id.Parse[id.Run](string(q.Run))
	_, errAgent := id.Parse[id.Agent](string(q.Agent))
	switch {
	case errRun != nil || errAgent != nil:
		return ask.Started{}, problem.New(problem.Invalid, "a run needs an agent's id, and one of its own if it has one")
	case len(q.Script) > maxScript:
		return ask.Started{}, problem.New(problem.TooLarge, "the script is %d bytes; the limit is %d", len(q.Script), maxScript)
	case len(q.Input) > maxInput:
		return ask.Started{}, problem.New(problem.TooLarge, "the input is %d bytes; the limit is %d", len(q.Input), maxInput)
	case len(q.Input) > 0 && q.Script == "":
		return ask.Started{}, problem.New(problem.Invalid, "only a script has an input")
	case q.Script != "" && len(q.Prompt) > maxName:
		return ask.Started{}, problem.New(problem.Invalid, "a script's name has at most %d bytes", maxName)
	case q.Script == "" && (q.Prompt == "" || len(q.Prompt) > maxPrompt):
		return ask.Started{}, problem.New(problem.Invalid, "a prompt has 1 to %d bytes", maxPrompt)
	}
	if len(q.Input) > 0 {
		input, err := permit.CanonicalArgs(q.Input) // as it is recorded
		if err != nil {
			return ask.Started{}, problem.Wrap(err, problem.Invalid, "the input of a script is an object: %s", problem.DetailOf(err).Message)
		}
		q.Input = input
	}
	if err := s.view.Current(); err != nil {
		return ask.Started{}, err
	}
	def, ok := s.agents.Get(who.Tenant, string(q.Agent))
	switch {
	case !ok || def.Removed:
		return ask.Started{}, problem.New(problem.NotFound, "there is no agent %s", id.Name(q.Agent))
	case def.Hosting != agent.Hosted:
		return ask.Started{}, problem.New(problem.Invalid, "agent %s runs its own loop", id.Name(q.Agent))
	case q.Script != "" && !def.Runtime.Enabled:
		return ask.Started{}, problem.New(problem.Conflict, "the runtime of agent %s is off: it runs no script", id.Name(q.Agent))
	}
	ses := id.Derive[id.Session](string(q.Run))
	// The session first: a crash here leaves an empty session, and the repeated question finds it.
	_, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: session.Opened{Session: ses, Agent: q.Agent}, Tenant: who.Tenant, Key: string(ses),
		Actor: who.Actor, ID: id.Derive[id.Event](string(who.Tenant), string(ses), "opened")})
	if err != nil {
		return ask.Started{}, err
	}
	created := id.Derive[id.Event](string(who.Tenant), string(q.Run), "created")
	seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Tenant: who.Tenant, Key: string(q.Run), Run: q.Run, Actor: who.Actor, ID: created,
		Event: run.Created{Run: q.Run, Session: ses, Agent: def, Trigger: q.Trigger, Hook: q.Delivery, Taint: q.Taint, Body: run.Prompt{Text: q.Prompt, Script: q.Script, Input: q.Input}},
	}, 0)
	if problem.CodeOf(err) == problem.Conflict {
		return ask.Started{}, problem.Wrap(err, problem.Conflict, "run %s exists and was started otherwise", q.Run)
	}
	if err == nil && again && q.Script != "" {
		err = s.sameScript(ctx, seq, q)
	}
	return ask.Started{Run: q.Run, Seq: seq}, err
}

// sameScript says whether the run that stands at seq, maybe since an earlier asking, is the one that is asked for.
func (s *Service) sameScript(ctx context.Context, seq uint64, q ask.StartRun) error {
	stored, err := s.deps.Log.ReadAt(ctx, schemas.Activity, seq)
	if err != nil {
		return err
	}
	was, err := eventlog.Decode[run.Created](stored)
	if err != nil {
		return err
	}
	if was.Run != q.Run || was.Agent.Agent != q.Agent || was.Body.Script != q.Script || !bytes.Equal(was.Body.Input, q.Input) {
		return problem.New(problem.Conflict, "the same key started another script before; use a new one")
	}
	return nil
}

func (s *Service) cancelRun(ctx context.Context, who rpc.Caller, q ask.CancelRun) (ask.Done, error) {
	if _, err := id.Parse[id.Run](string(q.Run)); err != nil || len(q.Reason) > 4096 {
		return ask.Done{}, problem.New(problem.Invalid, "a cancellation needs a run's id, and a reason of at most 4096 bytes")
	}
	return ask.Done{}, s.runs.use(ctx, who.Tenant, q.Run, func(state *loop.State) error {
		switch {
		case state.Created == nil:
			return problem.New(problem.NotFound, "there is no run %s", q.Run)
		case state.Ended != nil:
			return problem.New(problem.Conflict, "run %s has ended", q.Run)
		case state.Cancel != nil:
			return nil
		}
		_, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: run.CancelRequested{Run: q.Run, Reason: q.Reason},
			Tenant: who.Tenant, Key: string(q.Run), Run: q.Run, Actor: who.Actor}, state.RunSeq)
		return err
	})
}

func (s *Service) setModelKey(ctx context.Context, who rpc.Caller, q ask.SetModelKey) (ask.Done, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.Done{}, problem.New(problem.Denied, "a %s may not set model keys", who.Role)
	}
	if _, err := id.Parse[id.Agent](string(q.Agent)); err != nil {
		return ask.Done{}, problem.New(problem.Invalid, "a model key needs an agent's id")
	}
	_, err := s.vault.Put(ctx, who.Tenant, keyName(q.Agent), vault.NewSecret(q.Key))
	return ask.Done{}, err
}

func keyName(a id.Agent) string { return "model-key-" + id.Name(a) }

// keepsOf lists the tenants that there may be secrets of.
func (s *Service) keepsOf() ([]id.Tenant, error) {
	return append(s.agents.Tenants(), s.tenants.Tenants()...), s.view.Current()
}

// secretsOf names a tenant's secrets: a key for each agent's model, also of an agent that was removed.
func (s *Service) secretsOf(of id.Tenant) (names []string) {
	for _, a := range s.agents.All(of) {
		names = append(names, keyName(a.Agent))
	}
	return names
}
