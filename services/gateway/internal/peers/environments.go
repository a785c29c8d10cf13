package peers

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// DefineEnvironment asks environments.
func (p *Peers) DefineEnvironment(ctx context.Context, who auth.Identity, q ask.DefineEnvironment) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Environments, "environment_define", q)
}

// Environments asks environments.
func (p *Peers) Environments(ctx context.Context, who auth.Identity) (ask.Environments, error) {
	return rpc.Ask[ask.Environments](ctx, p.conn, schemas.Environments, "environment_list", who.Caller(), ask.ListEnvironments{})
}

// RemoveEnvironment asks environments.
func (p *Peers) RemoveEnvironment(ctx context.Context, who auth.Identity, q ask.RemoveEnvironment) (ask.InForce, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	return rpc.Ask[ask.InForce](ctx, p.conn, schemas.Environments, "environment_remove", who.Caller(), q)
}

// DrainEnvironment asks environments.
func (p *Peers) DrainEnvironment(ctx context.Context, who auth.Identity, q ask.DrainEnvironment) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Environments, "environment_drain", q)
}

// CreateEnrolment asks environments.
func (p *Peers) CreateEnrolment(ctx context.Context, who auth.Identity, q ask.CreateEnrolment) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Environments, "enrolment_create", q)
}

// EnrolConnector asks environments, in nobody's name: the token in the question says whether it may be.
func (p *Peers) EnrolConnector(ctx context.Context, tenant id.Tenant, q ask.EnrolConnector) (connector.Identity, error) {
	return rpc.Ask[connector.Identity](ctx, p.conn, schemas.Environments, "connector_enrol", rpc.Caller{Tenant: tenant, Actor: "connector"}, q)
}

// Output asks environments.
func (p *Peers) Output(ctx context.Context, who auth.Identity, q ask.ReadOutput) (ask.Output, error) {
	return rpc.Ask[ask.Output](ctx, p.conn, schemas.Environments, "output_read", who.Caller(), q)
}

// Attach asks environments.
func (p *Peers) Attach(ctx context.Context, who auth.Identity, q ask.Attach) (volume.Defined, error) {
	return rpc.Ask[volume.Defined](ctx, p.conn, schemas.Environments, "volume_attach", who.Caller(), q)
}

// releaseWithin is more than the grace of everything that may run on a machine.
const releaseWithin = 45 * time.Second

// Release asks environments, whose machine may take its time to end what runs.
func (p *Peers) Release(ctx context.Context, who auth.Identity, q ask.Release) (ask.Released, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	return rpc.Ask[ask.Released](ctx, p.conn, schemas.Environments, "volume_release", who.Caller(), q)
}

// copyWithin is more than a machine may take to copy a volume.
const copyWithin = 55 * time.Second

// CheckpointVolume asks environments.
func (p *Peers) CheckpointVolume(ctx context.Context, who auth.Identity, q ask.CheckpointVolume) (volume.Defined, error) {
	return copies(ctx, p, who, "volume_checkpoint", q)
}

// RestoreVolume asks environments.
func (p *Peers) RestoreVolume(ctx context.Context, who auth.Identity, q ask.RestoreVolume) (volume.Defined, error) {
	return copies(ctx, p, who, "volume_restore", q)
}

// CloneVolume asks environments.
func (p *Peers) CloneVolume(ctx context.Context, who auth.Identity, q ask.CloneVolume) (volume.Defined, error) {
	return copies(ctx, p, who, "volume_clone", q)
}

func copies[Q any](ctx context.Context, p *Peers, who auth.Identity, method string, q Q) (volume.Defined, error) {
	ctx, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	return rpc.Ask[volume.Defined](ctx, p.conn, schemas.Environments, method, who.Caller(), q)
}
