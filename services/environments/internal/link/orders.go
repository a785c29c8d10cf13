package link

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
)

// hear takes one message of the registry. Whatever takes time is done beside, in one of a bounded number of places.
func (l *Link) hear(ctx context.Context, m *nats.Msg) {
	verb := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	switch verb {
	case "fence":
		l.fencing.Do(func() { close(l.fenced) })
		return
	case "lease": // small, and must not wait behind orders
		reply(m, func(said connector.Leases) (connector.Leased, error) {
			return connector.Leased{Faults: l.take(ctx, said)}, nil
		})
		return
	}
	places := l.places
	if verb == "cancel" || verb == "end" { // what ends orders does not wait for them
		places = l.ends
	}
	select {
	case places <- struct{}{}:
	default:
		respond(m, connector.Reply[struct{}]{Code: string(problem.Busy), Message: "the machine carries out as many orders as it may"})
		return
	}
	l.working.Go(func() {
		defer func() { <-places }()
		switch verb {
		case "order":
			reply(m, func(o connector.Order) (connector.Answer, error) { return l.order(ctx, o) })
		case "cancel":
			reply(m, func(c connector.Cancel) (connector.Answer, error) { return l.machine.Cancel(ctx, c), nil })
		case "visit":
			reply(m, func(o connector.OpenVisit) (connector.VisitOpened, error) { return l.visit(ctx, o) })
		case "end":
			reply(m, func(e connector.End) (connector.Ended, error) {
				l.leases.end(e.Attachment)
				return l.machine.End(ctx, e)
			})
		case "checkpoint":
			reply(m, func(c connector.Checkpoint) (connector.Checkpointed, error) {
				return within(ctx, l.machine.Checkpoint, c)
			})
		case "restore":
			reply(m, func(r connector.Restore) (connector.Copied, error) { return within(ctx, l.machine.Restore, r) })
		case "clone":
			reply(m, func(c connector.Clone) (connector.Copied, error) { return within(ctx, l.machine.Clone, c) })
		default:
			respond(m, connector.Reply[struct{}]{Code: string(problem.Invalid), Message: "this connector is older than what is asked of it; upgrade it"})
		}
	})
}

// within gives what copies a volume up when nobody waits for it any more.
func within[Q, A any](ctx context.Context, do func(context.Context, Q) (A, error), q Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, connector.CopyLife)
	defer cancel()
	return do(ctx, q)
}

func reply[Q, A any](m *nats.Msg, answer func(Q) (A, error)) {
	var q Q
	if len(m.Data) > connector.MaxMessage || json.Unmarshal(m.Data, &q) != nil {
		respond(m, connector.Reply[A]{Code: string(problem.Invalid), Message: "the order cannot be read"})
		return
	}
	a, err := answer(q)
	if err != nil {
		d := problem.DetailOf(err)
		respond(m, connector.Reply[A]{Code: string(d.Code), Message: d.Message})
		return
	}
	respond(m, connector.Reply[A]{Body: a})
}

func respond(m *nats.Msg, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		return
	}
	_ = m.Respond(raw) // whoever asked asks again
}

// order checks an order and has it carried out. One that may not begin any more is still asked after: what it began in time
// has its receipt, and that is its answer. An error means not now.
func (l *Link) order(ctx context.Context, o connector.Order) (connector.Answer, error) {
	// A store that is younger than the admission does not know whether the order was begun under an older one.
	if since := l.since.Load(); since != nil && o.AdmittedAt.Before(*since) {
		return connector.Answer{State: connector.Unknown, Code: string(problem.Unknown), Message: "unknown_outcome: the machine's receipts are younger than the order"}, nil
	}
	why := l.permitted(o)
	if why != nil && problem.CodeOf(why) != problem.Expired {
		return refused(why), nil // of nobody's making: it is not even looked for
	}
	if why == nil {
		why = l.leases.check(o)
	}
	o.Only = o.Only || why != nil
	o.Patience = min(max(o.Patience, 0), time.Minute)
	answer := l.machine.Do(ctx, o)
	if ctx.Err() != nil && answer.State != connector.Done {
		// What seems to fail may fail because this life of the connector ends, while the order is carried out.
		return connector.Answer{}, problem.New(problem.Unavailable, "the connector is ending; the next one knows")
	}
	switch {
	case answer.State != connector.NotBegun || why == nil:
		return answer, nil
	case problem.CodeOf(why) == problem.Unavailable:
		return connector.Answer{}, why
	}
	return refused(why), nil
}

func refused(err error) connector.Answer {
	d := problem.DetailOf(err)
	return connector.Answer{State: connector.Refused, Code: string(d.Code), Message: d.Message}
}

// permitted says whether the broker really admitted this call, with these arguments, for this tenant's machines.
// Problems: denied, and expired for one that was admitted and may not begin any more.
func (l *Link) permitted(o connector.Order) error {
	p, over := l.keys.Verify(o.Permit, call.Exec, l.now())
	if over != nil && problem.CodeOf(over) != problem.Expired {
		return over
	}
	asked := call.Requested{Call: o.Call, Run: o.Run, Agent: o.Agent, Tool: o.Tool, ArgsDigest: permit.Digest(o.Args)}
	if err := p.Covers(l.identity.Tenant, asked, o.Requested); err != nil {
		return err
	}
	if p.Attachment != o.Attachment || p.Epoch != o.Epoch {
		return problem.New(problem.Denied, "the call was admitted for another attachment, or before one was there; it has to be called again")
	}
	return over
}
