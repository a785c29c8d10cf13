package environments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// visitWithin is how long a machine may take to begin a visit.
const visitWithin = 20 * time.Second

// openVisit asks a machine for a stream of a visit that was admitted. The machine judges the permit; here it is only seen to that
// nobody goes on with another's.
func (s *Service) openVisit(ctx context.Context, who rpc.Caller, q ask.OpenVisit) (ask.OpenedVisit, error) {
	if err := s.configures(who); err != nil {
		return ask.OpenedVisit{}, err
	}
	at, _, _, err := s.there(who, q.Environment)
	if err != nil {
		return ask.OpenedVisit{}, err
	}
	var v connector.Visit
	if err := json.Unmarshal(q.Open.Visit, &v); err != nil {
		return ask.OpenedVisit{}, problem.Wrap(err, problem.Invalid, "the visit cannot be read")
	}
	if v.Actor != who.Actor || v.Environment != q.Environment {
		return ask.OpenedVisit{}, problem.New(problem.Denied, "this visit is somebody else's")
	}
	if _, err := id.Parse[id.Visit](string(v.Visit)); err != nil {
		return ask.OpenedVisit{}, problem.Wrap(err, problem.Invalid, "visit: %v", err)
	}
	// As for a call: before the machine may print anything. The first to be kept counts.
	if err := s.deps.Log.KeepOutputHome(ctx, at.Tenant, q.Environment, id.Call(v.Visit)); err != nil {
		return ask.OpenedVisit{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, visitWithin)
	defer cancel()
	answer, _, err := askMachine[connector.VisitOpened](ctx, s, at, "visit", q.Open, visitWithin)
	if err != nil {
		return ask.OpenedVisit{}, err
	}
	to, _ := s.registry.Connectors.Get(at.Tenant, string(at.Environment))
	if answer.Instance != to.Instance {
		return ask.OpenedVisit{}, problem.New(problem.Unavailable, "the machine of environment %s came anew; try again", id.Name(q.Environment))
	}
	return ask.OpenedVisit{Visit: v.Visit, Instance: answer.Instance}, nil
}

// onVisited records how a visit ended, as its machine tells. It is answered when it is on record: a machine that hears nothing
// tells again, under the same id.
func (s *Service) onVisited(ctx context.Context, m *nats.Msg) {
	var reply connector.Reply[struct{}]
	if err := s.visited(ctx, m); err != nil {
		d := problem.DetailOf(err)
		reply.Code, reply.Message = string(d.Code), d.Message
		s.log.Warn("the end of a visit is not recorded", "err", err)
	}
	if raw, err := json.Marshal(reply); err == nil {
		_ = m.Respond(raw) // the machine tells again
	}
}

func (s *Service) visited(ctx context.Context, m *nats.Msg) error {
	at, err := placeOf(m.Subject)
	if err != nil || len(m.Data) > connector.MaxMessage {
		return problem.New(problem.Invalid, "the end of the visit cannot be read")
	}
	var e visit.Ended
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return problem.Wrap(err, problem.Invalid, "the end of the visit cannot be read")
	}
	if _, err := id.Parse[id.Visit](string(e.Visit)); err != nil {
		return problem.Wrap(err, problem.Invalid, "visit: %v", err)
	}
	e.Environment, e.Reason, e.Signal, e.SHA256 = at.Environment, clip(e.Reason), clip(e.Signal), clip(e.SHA256)
	admitted, err := s.admittedVisit(ctx, at, e.Visit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	_, err = s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: e, Tenant: at.Tenant, Key: string(e.Visit), Actor: actor, ID: id.Derive[id.Event](string(at.Tenant), string(e.Visit), "ended")}, admitted)
	if problem.CodeOf(err) == problem.Conflict {
		return nil // it has ended already
	}
	return err
}

// admittedVisit finds the admission of a visit on that machine.
func (s *Service) admittedVisit(ctx context.Context, at registry.Place, v id.Visit) (uint64, error) {
	stored, err := s.deps.Log.Last(ctx, schemas.Activity, schemas.SubjectOf(at.Tenant, visit.Admitted{}.Kind(), string(v), "").String())
	if err != nil {
		return 0, err
	}
	admitted, err := eventlog.Decode[visit.Admitted](stored)
	if err != nil {
		return 0, err
	}
	if admitted.Environment != at.Environment {
		return 0, problem.New(problem.Denied, "the visit is to another machine")
	}
	return stored.Seq, nil
}
