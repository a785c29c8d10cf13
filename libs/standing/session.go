package standing

import (
	"context"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// SessionOf reads the session of a run, by the stream's own word; none, for the conversation of an external client.
// Problems: unavailable.
func SessionOf(ctx context.Context, log *eventlog.Log, tenant id.Tenant, r id.Run) (id.Session, error) {
	e, err := log.Last(ctx, schemas.Activity, schemas.SubjectOf(tenant, run.Created{}.Kind(), string(r), "").String())
	if problem.CodeOf(err) == problem.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	created, err := eventlog.Decode[run.Created](e)
	return created.Session, err
}
