package peers

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// AdmitVisit asks the broker.
func (p *Peers) AdmitVisit(ctx context.Context, who auth.Identity, q ask.AdmitVisit) (ask.AdmittedVisit, error) {
	return rpc.Ask[ask.AdmittedVisit](ctx, p.conn, schemas.Toolbroker, "visit_admit", who.Caller(), q)
}

// visitWithin is more than a machine may take to begin a visit.
const visitWithin = 25 * time.Second

// OpenVisit asks environments, whose machine begins the visit, or goes on with it.
func (p *Peers) OpenVisit(ctx context.Context, who auth.Identity, q ask.OpenVisit) (ask.OpenedVisit, error) {
	ctx, cancel := context.WithTimeout(ctx, visitWithin)
	defer cancel()
	return rpc.Ask[ask.OpenedVisit](ctx, p.conn, schemas.Environments, "visit_open", who.Caller(), q)
}

// Bounds of what waits for a person who is slow; what finds no room is sent again by the machine.
const (
	visitMessages = 1024
	visitBytes    = 2 << 20
)

// HearVisit hears what comes back of a visit's stream, before it is opened.
func (p *Peers) HearVisit(who auth.Identity, env id.Environment, v id.Visit, stream int) (*nats.Subscription, error) {
	sub, err := p.conn.NC.SubscribeSync(bus.VisitFrom(who.Tenant, env, v, strconv.Itoa(stream)))
	if err == nil {
		err = sub.SetPendingLimits(visitMessages, visitBytes)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the bus does not carry visits now")
	}
	return sub, nil
}

// TellVisit passes on what a person sends. What is lost they send again.
func (p *Peers) TellVisit(who auth.Identity, env id.Environment, to ask.OpenedVisit, stream int, message []byte) {
	_ = p.conn.NC.Publish(bus.VisitTo(who.Tenant, env, to.Instance, to.Visit, strconv.Itoa(stream)), message)
}
