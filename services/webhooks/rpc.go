package webhooks

import (
	"context"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/webhooks/internal/rules"
)

// minSecret is the shortest secret that an endpoint may have, in bytes.
const minSecret = 16

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(append(s.vault.Methods(s.keepsOf, s.secretsOf),
		rpc.On("trigger_define", s.defineTrigger),
		rpc.On("hook_define", s.defineHook),
	)...)
}

func (s *Service) defineTrigger(ctx context.Context, who rpc.Caller, q ask.DefineTrigger) (ask.Sequence, error) {
	t := q.Trigger
	if !member.Role(who.Role).MayConfigure() {
		return ask.Sequence{}, problem.New(problem.Denied, "a %s may not change triggers", who.Role)
	}
	_, errTrigger := id.Parse[id.Trigger](string(t.Trigger))
	_, errHook := id.Parse[id.Hook](string(t.Hook))
	_, errAgent := id.Parse[id.Agent](string(t.Agent))
	if errTrigger != nil || errHook != nil || errAgent != nil {
		return ask.Sequence{}, problem.New(problem.Invalid, "a trigger needs its own id, a hook's and an agent's")
	}
	if err := rules.Check(t); err != nil && !t.Removed {
		return ask.Sequence{}, problem.Wrap(err, problem.Invalid, "%v", err)
	}
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: t, Tenant: who.Tenant, Key: string(t.Trigger), Actor: who.Actor})
	return ask.Sequence{Seq: seq}, err
}

func (s *Service) defineHook(ctx context.Context, who rpc.Caller, q ask.DefineHook) (ask.Done, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.Done{}, problem.New(problem.Denied, "a %s may not change webhook endpoints", who.Role)
	}
	if _, err := id.Parse[id.Hook](string(q.Hook)); err != nil || len(q.Secret) < minSecret {
		return ask.Done{}, problem.New(problem.Invalid, "an endpoint needs an id, and a secret of at least %d bytes", minSecret)
	}
	_, err := s.vault.Put(ctx, who.Tenant, string(q.Hook), vault.NewSecret(q.Secret))
	return ask.Done{}, err
}

// keepsOf lists the tenants that there may be secrets of.
func (s *Service) keepsOf() ([]id.Tenant, error) {
	return append(s.triggers.Tenants(), s.tenants.Tenants()...), s.view.Current()
}

// secretsOf names a tenant's secrets: those of the endpoints that triggers name. Another endpoint's leads to nothing, and
// is sealed under the newest key when it is next set.
func (s *Service) secretsOf(of id.Tenant) (names []string) {
	for _, t := range s.triggers.All(of) {
		names = append(names, string(t.Hook))
	}
	return names
}
