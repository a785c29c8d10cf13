package link

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
)

// visit checks that the broker really admitted a person, and lets them in. A permit that has run out, or a lease that lapsed, lets
// nothing begin; what is there goes on until its attachment ends.
func (l *Link) visit(ctx context.Context, o connector.OpenVisit) (connector.VisitOpened, error) {
	var v connector.Visit
	if err := json.Unmarshal(o.Visit, &v); err != nil {
		return connector.VisitOpened{}, problem.Wrap(err, problem.Invalid, "the visit cannot be read")
	}
	p, over := l.keys.Verify(o.Permit, connector.VisitAudience, l.now())
	switch {
	case over != nil && problem.CodeOf(over) != problem.Expired:
		return connector.VisitOpened{}, over
	case p.Tenant != l.identity.Tenant || p.ArgsDigest != permit.Digest(o.Visit) || v.Environment != l.identity.Environment || p.Attachment != v.Attachment || p.Epoch != v.Epoch:
		return connector.VisitOpened{}, problem.New(problem.Denied, "the permit is for another visit")
	}
	if over == nil {
		over = l.leases.check(connector.Order{Attachment: v.Attachment, Epoch: v.Epoch, Volume: v.Volume})
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	at := bus.VisitFrom(l.identity.Tenant, l.identity.Environment, v.Visit, strconv.Itoa(o.Stream))
	err := l.machine.OpenVisit(ctx, v, o, over == nil, func(message []byte) error { return l.nc.Publish(at, message) })
	if problem.CodeOf(err) == problem.Expired && over != nil {
		err = over
	}
	return connector.VisitOpened{Instance: l.instance}, err
}

// openWithin is how long a visit may take to begin.
const openWithin = 15 * time.Second

// takeVisit takes what a person sent.
func (l *Link) takeVisit(m *nats.Msg) {
	parts := strings.Split(m.Subject, ".")
	stream, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return
	}
	l.machine.TakeVisit(id.Visit(parts[len(parts)-2]), stream, m.Data)
}

// tellVisits has ends put on record. One whose answer is lost is told again.
func (l *Link) tellVisits(ctx context.Context) {
	if !l.welcomed.Load() {
		return
	}
	for _, e := range l.machine.EndedVisits() {
		raw, err := json.Marshal(e)
		if err != nil {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, storeWithin)
		m, err := l.nc.RequestWithContext(ask, bus.MachineSubject(l.identity.Tenant, l.identity.Environment, "visited"), raw)
		cancel()
		var r connector.Reply[struct{}]
		if err != nil || json.Unmarshal(m.Data, &r) != nil || r.Code != "" {
			l.cfg.Log.Debug("a visit's end is told again", "visit", e.Visit, "err", err, "answer", r.Message)
			continue
		}
		l.machine.ToldVisit(e.Visit)
	}
}
