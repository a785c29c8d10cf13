package toolbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// listedBy says what a list is of: the method by which one of it is called, the argument that names it there, and the member
// that holds the name in the list.
var listedBy = map[string]struct{ method, argument, member string }{
	"resources/list":           {connection.ReadResource, "uri", "uri"},
	"resources/templates/list": {connection.ReadResource, "", ""}, // which URIs one makes is not known
	"prompts/list":             {connection.GetPrompt, "name", "name"},
}

// Bounds of such lists: of one item, in bytes, and of the wait for one server.
const (
	maxItem          = 64 << 10
	clientListWithin = 4 * time.Second
)

// listForClient asks servers what they have, and leaves out what the agent may not call. Lists are asked for each time: they
// are the servers' own, and change when they like.
func (s *Service) listForClient(ctx context.Context, who rpc.Caller, q ask.ListForClient) (ask.ForClient, error) {
	by, ok := listedBy[q.Method]
	if !ok {
		return ask.ForClient{}, problem.New(problem.Invalid, "there is no list by %.60q", q.Method)
	}
	if err := s.view.Current(); err != nil {
		return ask.ForClient{}, err
	}
	var mu sync.Mutex
	var out ask.ForClient
	var all []ask.ClientItem
	var group errgroup.Group
	group.SetLimit(maxListing)
	for _, def := range s.state.ConnectionsOf(who.Tenant) {
		name := id.Name(def.Connection)
		if def.Type != connection.MCP || q.Connection != "" && q.Connection != name {
			continue
		}
		known := s.state.Known(who.Tenant, q.Agent, name+"."+by.method)
		if !policy.Visible(known, q.Run, s.now()) {
			continue
		}
		group.Go(func() error {
			items, err := s.listOf(ctx, who.Tenant, def.Connection, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.log.WarnContext(ctx, "a connection does not list", "tenant", who.Tenant, "connection", def.Connection, "method", q.Method, "err", err)
				out.Silent = append(out.Silent, name)
				return nil
			}
			for _, item := range items {
				if s.mayBeCalled(known, q, by.argument, textOf(item, by.member)) {
					all = append(all, ask.ClientItem{Connection: name, Item: item})
				}
			}
			return nil
		})
	}
	_ = group.Wait() // no function of it gives an error
	slices.SortStableFunc(all, func(a, b ask.ClientItem) int { return cmp.Compare(a.Connection, b.Connection) })
	slices.Sort(out.Silent)
	out.Items = []ask.ClientItem{}
	size := 0
	for _, item := range all[min(max(q.Skip, 0), len(all)):] {
		if size += len(item.Item) + 60; size > maxPage && len(out.Items) > 0 {
			out.Rest = true
			break
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func (s *Service) listOf(ctx context.Context, tenant id.Tenant, c id.Connection, q ask.ListForClient) (items []json.RawMessage, err error) {
	p, _, err := s.providers.provider(tenant, c, q.Agent)
	if err != nil {
		return nil, err
	}
	lister, ok := p.(upstream.Lister)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, clientListWithin)
	defer cancel()
	raw, err := lister.List(ctx, q.Method, &upstream.Client{Client: q.Client, Conversation: q.Run, Say: func(string, json.RawMessage) {}})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, problem.Wrap(err, problem.Upstream, "the list cannot be read")
	}
	return slices.DeleteFunc(items, func(item json.RawMessage) bool { return len(item) > maxItem }), nil
}

// mayBeCalled says whether a call of one item would be let through, or held.
func (s *Service) mayBeCalled(known policy.Known, q ask.ListForClient, argument, value string) bool {
	if argument == "" {
		return true
	}
	args, err := json.Marshal(map[string]string{argument: value})
	if err != nil {
		return false
	}
	if args, err = permit.CanonicalArgs(args); err != nil {
		return false
	}
	return policy.Decide(known, policy.Request{Run: q.Run, Args: args}, &s.conditions, s.now()).Verdict != policy.Refuse
}

func textOf(item json.RawMessage, name string) (value string) {
	var all map[string]json.RawMessage
	if json.Unmarshal(item, &all) == nil {
		_ = json.Unmarshal(all[name], &value) // what has no name is called by none
	}
	return value
}
