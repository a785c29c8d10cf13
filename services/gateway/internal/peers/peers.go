// Package peers asks the other services, in the name of a member. What they refuse comes back as their problem.
package peers

import (
	"context"
	"slices"
	"time"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Ear hears the control stream.
type Ear interface {
	Wait(ctx context.Context, seq uint64) error
}

// Peers are the services that the gateway asks.
type Peers struct {
	conn *bus.Conn
	log  *eventlog.Log // for uploads only
	ear  Ear
}

// New makes peers on a connection. ear is the gateway's own view of the control stream.
func New(conn *bus.Conn, log *eventlog.Log, ear Ear) *Peers {
	return &Peers{conn: conn, log: log, ear: ear}
}

// seenWithin is how long the answer to a definition waits until this instance has heard it too.
const seenWithin = 2 * time.Second

// Seen waits until this instance has heard what was defined, so that whoever asked reads what they wrote. It is a
// courtesy: what is recorded stays so when the wait is over before.
func (p *Peers) Seen(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	_ = p.ear.Wait(ctx, seq)
}

func (p *Peers) define(ctx context.Context, who auth.Identity, to schemas.Service, method string, q any) (ask.Sequence, error) {
	a, err := rpc.Ask[ask.Sequence](ctx, p.conn, to, method, who.Caller(), q)
	if err == nil {
		p.Seen(ctx, a.Seq)
	}
	return a, err
}

// DefineConnection asks the broker.
func (p *Peers) DefineConnection(ctx context.Context, who auth.Identity, q ask.DefineConnection) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Toolbroker, "connection_define", q)
}

// DiffConnection asks the broker.
func (p *Peers) DiffConnection(ctx context.Context, who auth.Identity, q ask.DiffConnection) (ask.ConnectionDiff, error) {
	return rpc.Ask[ask.ConnectionDiff](ctx, p.conn, schemas.Toolbroker, "connection_diff", who.Caller(), q)
}

// BeginLogin asks the broker, which asks the provider and its authorization server first.
func (p *Peers) BeginLogin(ctx context.Context, who auth.Identity, q ask.BeginLogin) (ask.LoginBegun, error) {
	ctx, cancel := context.WithTimeout(ctx, loginWithin)
	defer cancel()
	return rpc.Ask[ask.LoginBegun](ctx, p.conn, schemas.Toolbroker, "login_begin", who.Caller(), q)
}

// LookLogin asks the broker for nobody in particular: whoever has the state may know.
func (p *Peers) LookLogin(ctx context.Context, tenant id.Tenant, q ask.LookLogin) (ask.WaitingLogin, error) {
	return rpc.Ask[ask.WaitingLogin](ctx, p.conn, schemas.Toolbroker, "login_look", rpc.Caller{Tenant: tenant, Actor: browser}, q)
}

// FinishLogin asks the broker, likewise.
func (p *Peers) FinishLogin(ctx context.Context, tenant id.Tenant, q ask.FinishLogin) (ask.FinishedLogin, error) {
	ctx, cancel := context.WithTimeout(ctx, loginWithin)
	defer cancel()
	return rpc.Ask[ask.FinishedLogin](ctx, p.conn, schemas.Toolbroker, "login_finish", rpc.Caller{Tenant: tenant, Actor: browser}, q)
}

const (
	browser     = "service:gateway"
	loginWithin = 45 * time.Second // of several requests to others' servers
)

// CreateGrant asks approvals.
func (p *Peers) CreateGrant(ctx context.Context, who auth.Identity, q ask.CreateGrant) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Approvals, "grant_create", q)
}

// InForce waits until nothing acts any more on what was before the control event at a sequence.
func (p *Peers) InForce(ctx context.Context, who auth.Identity, seq uint64) (ask.InForce, error) {
	p.Seen(ctx, seq)
	return barrier.Wait(ctx, p.conn, who.Caller(), seq)
}

// InForceAmong is InForce for those who act on something else than grants.
func (p *Peers) InForceAmong(ctx context.Context, who auth.Identity, seq uint64, services ...schemas.Service) (ask.InForce, error) {
	p.Seen(ctx, seq)
	return barrier.Among(ctx, p.conn, who.Caller(), seq, services...)
}

// RevokeGrant asks approvals, which answers when the revocation is in force.
func (p *Peers) RevokeGrant(ctx context.Context, who auth.Identity, q ask.RevokeGrant) (ask.InForce, error) {
	return rpc.Ask[ask.InForce](ctx, p.conn, schemas.Approvals, "grant_revoke", who.Caller(), q)
}

// ImportPackage keeps an upload where the broker finds it, and asks the broker to import it.
func (p *Peers) ImportPackage(ctx context.Context, who auth.Identity, c id.Connection, document string, upload []byte) (ask.Imported, error) {
	name, err := p.log.PutUpload(ctx, who.Tenant, upload)
	if err != nil {
		return ask.Imported{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, importWithin)
	defer cancel()
	a, err := rpc.Ask[ask.Imported](ctx, p.conn, schemas.Toolbroker, "package_import", who.Caller(), ask.ImportPackage{Connection: c, Upload: name, Document: document})
	if err == nil {
		p.Seen(ctx, a.Seq)
	}
	return a, err
}

// importWithin is how long the broker may take to import an API's description: large ones have thousands of operations.
const importWithin = 45 * time.Second

// SimulateGrant asks the broker.
func (p *Peers) SimulateGrant(ctx context.Context, who auth.Identity, q ask.SimulateGrant) (ask.Simulation, error) {
	return rpc.Ask[ask.Simulation](ctx, p.conn, schemas.Toolbroker, "grant_simulate", who.Caller(), q)
}

// ShowAccess asks the broker.
func (p *Peers) ShowAccess(ctx context.Context, who auth.Identity, q ask.ShowAccess) (ask.Access, error) {
	return rpc.Ask[ask.Access](ctx, p.conn, schemas.Toolbroker, "access_show", who.Caller(), q)
}

// ShowTypes asks the broker.
func (p *Peers) ShowTypes(ctx context.Context, who auth.Identity, q ask.ShowTypes) (ask.Types, error) {
	return rpc.Ask[ask.Types](ctx, p.conn, schemas.Toolbroker, "types_show", who.Caller(), q)
}

// Artifacts asks the runtime what a session keeps.
func (p *Peers) Artifacts(ctx context.Context, who auth.Identity, q ask.ListArtifacts) (ask.Artifacts, error) {
	return rpc.Ask[ask.Artifacts](ctx, p.conn, schemas.Runtime, "artifacts_list", who.Caller(), q)
}

// Artifact asks the runtime for a kept value, and reads one that is too large for an answer where the runtime put it.
func (p *Peers) Artifact(ctx context.Context, who auth.Identity, q ask.GetArtifact) (ask.GotArtifact, error) {
	got, err := rpc.Ask[ask.GotArtifact](ctx, p.conn, schemas.Runtime, "artifact_get", who.Caller(), q)
	if err == nil && got.Upload != "" {
		got.Value, err = p.log.GetUpload(ctx, who.Tenant, got.Upload)
	}
	return got, err
}

// DefineTarget asks approvals.
func (p *Peers) DefineTarget(ctx context.Context, who auth.Identity, q ask.DefineTarget) (ask.DefinedTarget, error) {
	a, err := rpc.Ask[ask.DefinedTarget](ctx, p.conn, schemas.Approvals, "target_define", who.Caller(), q)
	if err == nil {
		p.Seen(ctx, a.Seq)
	}
	return a, err
}

// TestTarget asks approvals to have a notice sent, which takes as long as the target does.
func (p *Peers) TestTarget(ctx context.Context, who auth.Identity, q ask.TestTarget) (ask.Done, error) {
	return rpc.Ask[ask.Done](ctx, p.conn, schemas.Approvals, "target_test", who.Caller(), q)
}

// DefineTrigger asks webhooks.
func (p *Peers) DefineTrigger(ctx context.Context, who auth.Identity, q ask.DefineTrigger) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Webhooks, "trigger_define", q)
}

// DefineHook asks webhooks.
func (p *Peers) DefineHook(ctx context.Context, who auth.Identity, q ask.DefineHook) (ask.Done, error) {
	return rpc.Ask[ask.Done](ctx, p.conn, schemas.Webhooks, "hook_define", who.Caller(), q)
}

// DefineEnvironment asks environments.
func (p *Peers) DefineEnvironment(ctx context.Context, who auth.Identity, q ask.DefineEnvironment) (ask.Sequence, error) {
	return p.define(ctx, who, schemas.Environments, "environment_define", q)
}

// SetModelKey asks the agent loop.
func (p *Peers) SetModelKey(ctx context.Context, who auth.Identity, q ask.SetModelKey) (ask.Done, error) {
	return rpc.Ask[ask.Done](ctx, p.conn, schemas.Agentloop, "model_key_set", who.Caller(), q)
}

// RewrapKeys asks a service that keeps secrets, which may have to ask a KMS for each of a page of tenants.
func (p *Peers) RewrapKeys(ctx context.Context, who auth.Identity, s schemas.Service, q ask.Rewrap) (ask.Rewrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, rewrapWithin)
	defer cancel()
	return rpc.Ask[ask.Rewrapped](ctx, p.conn, s, "keys_rewrap", who.Caller(), q)
}

// MasterKeys asks every instance of the services that keep secrets under which master key it seals. Who does not answer is
// listed with the reason.
func (p *Peers) MasterKeys(ctx context.Context, who auth.Identity) ([]ask.InstanceKey, error) {
	roster, err := bus.AskRoster(ctx, p.conn)
	if err != nil {
		return nil, err
	}
	var all []ask.InstanceKey
	for _, s := range schemas.Keepers() {
		silent := slices.Clone(roster.Lives[s])
		if len(silent) == 0 {
			all = append(all, ask.InstanceKey{Service: string(s), Reason: "no instance is running"})
			continue
		}
		within, cancel := context.WithTimeout(ctx, masterKeyWithin)
		// Its error is the end of the wait, or that nobody is there; both leave somebody silent.
		_ = rpc.AskEach(within, p.conn, s, schemas.MasterKey, who.Caller(), ask.MasterKey{}, func(life string, a ask.MasterKeyName, err error) bool {
			one := ask.InstanceKey{Service: string(s), Instance: life, Key: a.Key}
			if err != nil {
				one.Reason = problem.DetailOf(err).Message
			}
			all = append(all, one)
			silent = slices.DeleteFunc(silent, func(l string) bool { return l == life })
			return len(silent) == 0
		})
		cancel()
		for _, life := range silent {
			all = append(all, ask.InstanceKey{Service: string(s), Instance: life, Reason: "it does not answer; one that died is gone after 10 s"})
		}
	}
	return all, nil
}

// masterKeyWithin is how long the instances of a service may take to name their master key: a KMS may have to be asked.
const masterKeyWithin = 6 * time.Second

// RenewKeys asks a service that keeps secrets.
func (p *Peers) RenewKeys(ctx context.Context, who auth.Identity, s schemas.Service) (ask.Rewrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, rewrapWithin)
	defer cancel()
	return rpc.Ask[ask.Rewrapped](ctx, p.conn, s, "keys_renew", who.Caller(), ask.RenewKeys{})
}

// rewrapWithin is how long a service may take for a page of tenants.
const rewrapWithin = 45 * time.Second

// StartRun asks the agent loop.
func (p *Peers) StartRun(ctx context.Context, who auth.Identity, q ask.StartRun) (ask.Started, error) {
	return rpc.Ask[ask.Started](ctx, p.conn, schemas.Agentloop, "run_start", who.Caller(), q)
}

// CancelRun asks the agent loop.
func (p *Peers) CancelRun(ctx context.Context, who auth.Identity, q ask.CancelRun) (ask.Done, error) {
	return rpc.Ask[ask.Done](ctx, p.conn, schemas.Agentloop, "run_cancel", who.Caller(), q)
}

// Approvals asks approvals.
func (p *Peers) Approvals(ctx context.Context, who auth.Identity, q ask.ListApprovals) (ask.Approvals, error) {
	return rpc.Ask[ask.Approvals](ctx, p.conn, schemas.Approvals, "approval_list", who.Caller(), q)
}

// Approval asks approvals for one. Problems: not_found.
func (p *Peers) Approval(ctx context.Context, who auth.Identity, which id.Approval) (ask.Approval, error) {
	return rpc.Ask[ask.Approval](ctx, p.conn, schemas.Approvals, "approval_show", who.Caller(), ask.ShowApproval{Approval: which})
}

// EditApproval asks approvals, which asks the broker.
func (p *Peers) EditApproval(ctx context.Context, who auth.Identity, q ask.EditApproval) (ask.Approval, error) {
	return rpc.Ask[ask.Approval](ctx, p.conn, schemas.Approvals, "approval_edit", who.Caller(), q)
}

// Decide asks approvals.
func (p *Peers) Decide(ctx context.Context, who auth.Identity, q ask.DecideApproval) (ask.Approval, error) {
	return rpc.Ask[ask.Approval](ctx, p.conn, schemas.Approvals, "approval_decide", who.Caller(), q)
}

// Runs asks the ledger.
func (p *Peers) Runs(ctx context.Context, who auth.Identity, q ask.Runs) (ask.RunPage, error) {
	return rpc.Ask[ask.RunPage](ctx, p.conn, schemas.Ledger, "runs", who.Caller(), q)
}

// Events asks the ledger.
func (p *Peers) Events(ctx context.Context, who auth.Identity, q ask.Events) (ask.EventPage, error) {
	return rpc.Ask[ask.EventPage](ctx, p.conn, schemas.Ledger, "events", who.Caller(), q)
}

// Timeline asks the ledger what happened in a run. Problems: not_found.
func (p *Peers) Timeline(ctx context.Context, who auth.Identity, q ask.Timeline) (ask.EventPage, error) {
	return rpc.Ask[ask.EventPage](ctx, p.conn, schemas.Ledger, "timeline", who.Caller(), q)
}

// Position asks the ledger how far it has recorded.
func (p *Peers) Position(ctx context.Context, who auth.Identity) (ask.Cursor, error) {
	return rpc.Ask[ask.Cursor](ctx, p.conn, schemas.Ledger, "position", who.Caller(), ask.Position{})
}

// Verify asks the ledger to prove itself, which takes longer the more there is.
func (p *Peers) Verify(ctx context.Context, who auth.Identity) (ask.Verified, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return rpc.Ask[ask.Verified](ctx, p.conn, schemas.Ledger, "verify", who.Caller(), ask.Verify{})
}
