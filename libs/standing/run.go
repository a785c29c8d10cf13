package standing

import (
	"context"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// RunCancelled says whether a run was cancelled, by the stream's own word. Problems: unavailable.
func RunCancelled(ctx context.Context, log *eventlog.Log, tenant id.Tenant, r id.Run) (bool, error) {
	_, err := log.Last(ctx, schemas.Activity, schemas.SubjectOf(tenant, run.Cancelled{}.Kind(), string(r), "").String())
	if problem.CodeOf(err) == problem.NotFound {
		return false, nil
	}
	return err == nil, err
}
