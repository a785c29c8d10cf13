package toolbroker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Times of watching. watchWithin is for the server to agree.
const (
	watchWithin  = 8 * time.Second
	restOfUpdate = time.Second // one resource is told once in it, whatever its server says
)

// maxURI bounds what a resource that is watched is called, in bytes.
const maxURI = 2 << 10

// watchResource has a conversation told of a resource, if the agent may read it now: admitted, and not held for a person.
func (s *Service) watchResource(ctx context.Context, who rpc.Caller, q ask.WatchResource) (ask.Watched, error) {
	con, err := id.Named[id.Connection](q.Connection)
	if err != nil {
		return ask.Watched{}, problem.Wrap(err, problem.Invalid, "connection: %v", err)
	}
	if q.URI == "" || len(q.URI) > maxURI || q.Watcher == "" {
		return ask.Watched{}, problem.New(problem.Invalid, "a resource that is watched has a URI of 1 to %d bytes, and a conversation that watches it", maxURI)
	}
	by := watcher{who.Tenant, q.Agent, q.Watcher}
	if q.Ended {
		s.watching.end(by, con, q.URI)
		return ask.Watched{}, nil
	}
	if err := s.mayRead(ctx, who.Tenant, q); err != nil {
		return ask.Watched{}, err
	}
	p, def, err := s.providers.provider(who.Tenant, con, q.Agent)
	if err != nil {
		return ask.Watched{}, err
	}
	w, ok := p.(upstream.Watcher)
	if def.Type != connection.MCP || !ok {
		return ask.Watched{}, problem.New(problem.Invalid, "connection %s is no MCP server", q.Connection)
	}
	key := watchKey{providerKey{connectionKey{who.Tenant, con}, ""}, q.URI}
	if def.OAuth.PerAgent {
		key.agent = q.Agent
	}
	fresh, err := s.watching.lease(by, key, s.now())
	if err != nil {
		return ask.Watched{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	if err := w.Watch(ctx, q.URI); err != nil {
		if fresh { // a lease that was there goes on: the server may be back before it lapses
			s.watching.end(by, con, q.URI)
		}
		return ask.Watched{}, err
	}
	return ask.Watched{}, nil
}

// mayRead decides as if the resource were read.
func (s *Service) mayRead(ctx context.Context, tenant id.Tenant, q ask.WatchResource) error {
	if err := s.view.Current(); err != nil {
		return err // a revocation might be among what was missed
	}
	args, err := json.Marshal(map[string]string{"uri": q.URI})
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "the URI cannot be written")
	}
	if args, err = permit.CanonicalArgs(args); err != nil {
		return err
	}
	earlier := s.approvedEarlier(ctx, tenant, q.Run)
	k := s.knowledge(tenant, q.Agent, q.Connection+"."+connection.ReadResource, args)
	d := s.judge(k, policy.Request{Run: q.Run, Args: args, Tainted: q.Taint, Before: earlier.under, Passed: earlier.forRun})
	if err := earlier.failed(); err != nil {
		return err
	}
	switch d.Verdict {
	case policy.Admit:
		return nil
	case policy.Hold:
		return problem.New(problem.Denied, "a person decides on each reading of this resource, so that its changes are not told")
	}
	return problem.New(d.Code, "%s", d.Reason)
}

// sayUpdates says which watched resources changed, and lets leases lapse, until ctx ends.
func (s *Service) sayUpdates(ctx context.Context) {
	sweep := time.NewTicker(watchLease / 6)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			s.watching.lapse(s.now())
			continue
		case <-s.watching.wake:
		}
		for _, key := range s.watching.take() {
			raw, err := json.Marshal(connection.Updated{URI: key.uri, Agent: key.agent})
			if err == nil {
				_ = s.deps.Conn.NC.Publish(bus.UpdatedSubject(key.tenant, key.connection), raw) // who misses it reads later what it had read before
			}
		}
		select { // what is said again meanwhile is said once
		case <-ctx.Done():
			return
		case <-time.After(restOfUpdate):
		}
	}
}
