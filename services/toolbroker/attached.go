package toolbroker

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas/id"
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
	return standing.SessionOf(ctx, s.deps.Log, tenant, r)
}
