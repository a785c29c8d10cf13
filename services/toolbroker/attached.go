package toolbroker

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// attached says whether a machine is attached for a run: to it, to its session or to its agent. Only what an agent is
// shown depends on it: whether a call finds a machine, the registry says when it is made.
func (s *Service) attached(ctx context.Context, tenant id.Tenant, a id.Agent, r id.Run) (bool, error) {
	var sessions []id.Session
	for _, v := range s.volumes.All(tenant) {
		switch {
		case v.Attached == nil || v.Removed:
		case v.Attached.Holder.Agent == a && a != "", v.Attached.Holder.Run == r && r != "":
			return true, nil
		case v.Attached.Holder.Session != "":
			sessions = append(sessions, v.Attached.Holder.Session)
		}
	}
	if len(sessions) == 0 || r == "" {
		return false, nil
	}
	e, err := s.deps.Log.Last(ctx, schemas.Activity, schemas.SubjectOf(tenant, run.Created{}.Kind(), string(r), "").String())
	if problem.CodeOf(err) == problem.NotFound {
		return false, nil // a conversation of an external client, which has no session
	}
	if err != nil {
		return false, err
	}
	created, err := eventlog.Decode[run.Created](e)
	if err != nil {
		return false, err
	}
	return slices.Contains(sessions, created.Session), nil
}
