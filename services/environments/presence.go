package environments

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// presence is which machines are there, as this instance hears them. It is no state: after a restart it is known anew
// within one beat.
type presence struct {
	mu    sync.Mutex
	seen  map[registry.Place]sighting
	since time.Time // of this instance
}

type sighting struct {
	at time.Time
	connector.Beat
}

func (p *presence) note(at registry.Place, b connector.Beat, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[registry.Place]sighting{}
	}
	p.seen[at] = sighting{now, b}
}

func (p *presence) of(at registry.Place) sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[at]
}

// silent is for how long nothing was heard of a machine: at most since this instance is there.
func (p *presence) silent(at registry.Place, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.since
	if s, ok := p.seen[at]; ok && s.at.After(last) {
		last = s.at
	}
	return now.Sub(last)
}

// state says how an environment stands.
func (s *Service) stateOf(at registry.Place, e environment.Registered) (ask.Presence, sighting) {
	seen := s.presence.of(at)
	switch {
	case e.Connector == nil && e.Enrolment != nil && s.now().Before(e.Enrolment.ExpiresAt):
		return ask.Invited, seen
	case e.Connector == nil:
		return ask.NotEnrolled, seen
	case s.now().Sub(seen.at) > connector.Life(s.cfg.LeaseLife).Absent():
		return ask.Offline, seen
	case seen.Fault != "":
		return ask.Faulty, seen
	}
	return ask.Online, seen
}

// hear takes what connectors say until the connection ends. Beats are heard by every instance; a hello is answered by one.
func (s *Service) hear(ctx context.Context) (stop func(), err error) {
	nc := s.deps.Conn.NC
	var subs []*nats.Subscription
	for _, l := range []struct {
		subject, queue string
		take           func(context.Context, *nats.Msg)
	}{
		{bus.MachineSubject("*", "*", "beat"), "", s.onBeat},
		{bus.MachineSubject("*", "*", "hello"), "environments", s.onHello},
		{bus.MachineSubject("*", "*", "visited"), "environments", s.onVisited},
		{bus.CalloutSubject, "environments", s.onCallout},
	} {
		sub, err := nc.QueueSubscribe(l.subject, l.queue, func(m *nats.Msg) { l.take(ctx, m) }) // no queue: each instance hears it
		if err != nil {
			return nil, problem.Wrap(err, problem.Unavailable, "the bus does not let connectors be heard")
		}
		subs = append(subs, sub)
	}
	return func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // a connection that is gone has none
		}
	}, nil
}

// onCallout says whether to let somebody in. While this instance is behind it lets nobody in: whoever seems to be a
// connector may have been removed meanwhile.
func (s *Service) onCallout(_ context.Context, m *nats.Msg) {
	if err := s.view.Current(); err != nil {
		s.log.Warn("nobody is let onto the bus", "err", err)
		return
	}
	response, who, reason := s.desk.Answer(m.Data)
	verdict := "admitted"
	if reason != nil {
		verdict = "refused"
		s.log.Warn("not let onto the bus", "who", who, "reason", reason)
	}
	s.callouts.WithLabelValues(verdict).Inc()
	if response != "" {
		_ = m.Respond([]byte(response)) // whoever asks tries again
	}
}

// placeOf reads tenant and environment out of a subject, which the server let nobody else speak on.
func placeOf(subject string) (registry.Place, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 6 {
		return registry.Place{}, errors.New("no machine's subject")
	}
	tenant, err := id.Parse[id.Tenant](tokens[3])
	if err != nil {
		return registry.Place{}, err
	}
	env, err := id.Parse[id.Environment](tokens[4])
	return registry.Place{Tenant: tenant, Environment: env}, err
}

func (s *Service) onBeat(_ context.Context, m *nats.Msg) {
	at, err := placeOf(m.Subject)
	if err != nil || len(m.Data) > connector.MaxMessage {
		return
	}
	var b connector.Beat
	if json.Unmarshal(m.Data, &b) != nil {
		return
	}
	if now, ok := s.registry.Connectors.Get(at.Tenant, string(at.Environment)); !ok || now.Instance != b.Instance {
		return // of an older life
	}
	b.Fault = clip(b.Fault)
	s.presence.note(at, b, s.now())
}

// maxText is the longest text of a machine's that is kept, in bytes.
const maxText = 500

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

func (s *Service) onHello(ctx context.Context, m *nats.Msg) {
	welcome, err := s.welcome(ctx, m)
	reply := connector.Reply[connector.Leases]{Body: welcome}
	if err != nil {
		d := problem.DetailOf(err)
		reply = connector.Reply[connector.Leases]{Code: string(d.Code), Message: d.Message}
	}
	raw, err := json.Marshal(reply)
	if err != nil {
		return
	}
	_ = m.Respond(raw) // a connector that hears nothing says hello again
}

// welcome makes the connector that says hello the environment's own. An instance that was welcomed before, and comes
// back when another has taken its place, is told so: it does not take the place back.
func (s *Service) welcome(ctx context.Context, m *nats.Msg) (connector.Leases, error) {
	at, err := placeOf(m.Subject)
	if err != nil || len(m.Data) > connector.MaxMessage {
		return connector.Leases{}, problem.New(problem.Invalid, "the hello cannot be read")
	}
	var h connector.Hello
	if err := json.Unmarshal(m.Data, &h); err != nil {
		return connector.Leases{}, problem.Wrap(err, problem.Invalid, "the hello cannot be read")
	}
	if err := h.Check(); err != nil {
		return connector.Leases{}, problem.Wrap(err, problem.Invalid, "the hello is not valid: %v", err)
	}
	if err := s.view.Current(); err != nil {
		return connector.Leases{}, err
	}
	e, _, there := s.registry.Environment(at)
	if !there {
		return connector.Leases{}, problem.New(problem.Denied, "environment %s was removed", id.Name(at.Environment))
	}
	if !proven(e, h) {
		return connector.Leases{}, problem.New(problem.Denied, "another machine was enrolled as environment %s", id.Name(at.Environment))
	}
	last, seq := s.registry.Connectors.Version(at.Tenant, string(at.Environment))
	now := connector.Welcomed{Environment: at.Environment, Instance: h.Instance, Store: h.Store, Version: h.Version, Manifest: h.Manifest}
	switch {
	case h.Again && last.Instance != h.Instance:
		return connector.Leases{}, problem.New(problem.Conflict, "another connector with this identity took over")
	case reflect.DeepEqual(last, now): // both were read from JSON
	default:
		seq, err = s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: now, Tenant: at.Tenant, Key: string(at.Environment), Actor: actor}, seq)
		if err != nil {
			return connector.Leases{}, err
		}
		// A crash here leaves the older instance unfenced on its subject, where nobody asks it any more; its next hello tells it.
		if last.Instance != "" && last.Instance != h.Instance {
			_ = s.deps.Conn.NC.Publish(bus.EnvironmentSubject(at.Tenant, at.Environment, last.Instance, "fence"), nil)
		}
		wait, cancel := context.WithTimeout(ctx, applyWithin)
		defer cancel()
		if err := s.view.Wait(wait, seq); err != nil {
			return connector.Leases{}, err
		}
	}
	return s.leasesOf(at), nil
}

// proven says that a hello is of the machine that is enrolled now, and not of one that was before and is on the bus until
// its pass is over.
func proven(e environment.Registered, h connector.Hello) bool {
	if e.Connector == nil {
		return false
	}
	key, err := nkeys.FromPublicKey(e.Connector.NKey)
	return err == nil && key.Verify(connector.HelloText(h), h.Proof) == nil
}

// applyWithin is how long this instance may take to hear what it said itself.
const applyWithin = 5 * time.Second
