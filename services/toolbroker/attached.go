package toolbroker

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/volume"
)

// attached finds the volume of a machine that a run works on: attached to it, to its session or to its agent.
func (s *Service) attached(ctx context.Context, tenant id.Tenant, a id.Agent, r id.Run) (volume.Defined, bool, error) {
	all := s.volumes.All(tenant)
	session, err := s.sessionOf(ctx, tenant, r, all)
	if err != nil {
		return volume.Defined{}, false, err
	}
	v, ok := volume.For(all, r, session, a)
	return v, ok, nil
}

// sessionOf reads the session of a run, where one is attached to any.
func (s *Service) sessionOf(ctx context.Context, tenant id.Tenant, r id.Run, all []volume.Defined) (id.Session, error) {
	if r == "" || !slices.ContainsFunc(all, func(v volume.Defined) bool { return v.Attached != nil && v.Attached.Holder.Session != "" }) {
		return "", nil
	}
	e, err := s.deps.Log.Last(ctx, schemas.Activity, schemas.SubjectOf(tenant, run.Created{}.Kind(), string(r), "").String())
	if problem.CodeOf(err) == problem.NotFound {
		return "", nil // a conversation of an external client, which has no session
	}
	if err != nil {
		return "", err
	}
	created, err := eventlog.Decode[run.Created](e)
	return created.Session, err
}
