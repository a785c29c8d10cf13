package mcp

import (
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// Times of subscriptions. They are asked for again well before the broker forgets them.
const (
	renewWatches = time.Minute
	watchWithin  = 10 * time.Second // until the broker, and the server behind it, have to agree
	restOfNews   = time.Second      // one conversation is told at most once in it of each resource
	endWithin    = 2 * time.Second
)

// Bounds of what is asked of the broker at once: for subscriptions that stand, and for those that one stream names.
const (
	asksAtOnce  = 32
	namedAtOnce = 4
)

// subscribe has a session told of a resource.
func (e *Endpoint) subscribe(ctx context.Context, c *conversation, method string, r mcp.Request, uri string, next mcp.MethodHandler) (mcp.Result, error) {
	one, fresh, err := e.watch(ctx, c, r, uri)
	if err != nil {
		return nil, err
	}
	result, err := next(ctx, method, r)
	if err != nil && fresh {
		e.unwatch(ctx, one)
	}
	return result, err
}

// unsubscribe ends that.
func (e *Endpoint) unsubscribe(ctx context.Context, c *conversation, method string, r mcp.Request, uri string, next mcp.MethodHandler) (mcp.Result, error) {
	for _, one := range e.watches.named(c, uri) {
		e.unwatch(ctx, one)
	}
	return next(ctx, method, r)
}

// listen has a stream of the protocol without sessions told of what it names, as long as it lasts. What may not be told is left
// out of what is agreed to; when that leaves nothing at all, the answer says why.
func (e *Endpoint) listen(ctx context.Context, c *conversation, method string, r mcp.Request, p *mcp.SubscriptionsListenParams, next mcp.MethodHandler) (mcp.Result, error) {
	n := p.Notifications
	if n == nil || len(n.ResourceSubscriptions) == 0 {
		return next(ctx, method, r)
	}
	var uris []string
	for _, uri := range n.ResourceSubscriptions {
		if !slices.Contains(uris, uri) {
			if uris = append(uris, uri); len(uris) > maxWatched {
				return nil, problem.New(problem.TooLarge, "a stream may name %d resources", maxWatched)
			}
		}
	}
	found, refused := make([]*watch, len(uris)), make([]error, len(uris))
	var group errgroup.Group
	group.SetLimit(namedAtOnce)
	for i, uri := range uris {
		group.Go(func() error { found[i], _, refused[i] = e.watch(ctx, c, r, uri); return nil })
	}
	_ = group.Wait() // no function of it gives an error
	var agreed []string
	var why error
	for i, one := range found {
		if one == nil {
			why = refused[i]
			continue
		}
		defer e.unwatch(ctx, one)
		agreed = append(agreed, uris[i])
	}
	if len(agreed) == 0 && !n.ToolsListChanged && !n.PromptsListChanged && !n.ResourcesListChanged {
		return nil, why
	}
	n.ResourceSubscriptions = agreed
	return next(ctx, method, r)
}

// watch has a conversation told of a resource, if its agent may read it.
func (e *Endpoint) watch(ctx context.Context, c *conversation, r mcp.Request, uri string) (one *watch, fresh bool, err error) {
	name, _, err := e.owner(ctx, c, r, "resources/list", "uri", uri)
	if err != nil {
		return nil, false, err
	}
	con, err := id.Named[id.Connection](name)
	if err != nil {
		return nil, false, problem.Wrap(err, problem.Internal, "the connection has no name")
	}
	one, fresh, err = e.watches.add(c, resource{c.who.Tenant, con, uri})
	if err != nil {
		return nil, false, err
	}
	within, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	if _, err := question[ask.Watched](within, e, c, "resource_watch", e.watchQuestion(one, false)); err != nil {
		if fresh { // one that stood goes on as it was
			e.unwatch(ctx, one)
		}
		return nil, false, err
	}
	return one, fresh, nil
}

// unwatch ends that. What the broker misses of it lapses.
func (e *Endpoint) unwatch(ctx context.Context, one *watch) {
	if !e.watches.leave(one) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	_, _ = e.askWatch(ctx, one, true)
}

func (e *Endpoint) watchQuestion(w *watch, ended bool) ask.WatchResource {
	c := w.by.talk
	return ask.WatchResource{Agent: c.who.Agent, Run: c.current(), Watcher: w.by.id, Connection: id.Name(w.connection), URI: w.uri, Taint: len(e.tainted(c)) > 0, Ended: ended}
}

// askWatch asks the broker what is no request of the client's: it counts against nobody's rate.
func (e *Endpoint) askWatch(ctx context.Context, one *watch, ended bool) (ask.Watched, error) {
	return rpc.Ask[ask.Watched](ctx, e.Conn, schemas.Toolbroker, "resource_watch", one.by.talk.who.Caller(), e.watchQuestion(one, ended))
}

// startTelling tells a conversation what is due to it, apart from everybody else.
func (e *Endpoint) startTelling(by *watcher) {
	e.sessions.apart(func() { e.tellWatched(by) })
}

// tellWatched tells a conversation what is due until there is nothing. What changes again meanwhile is told once.
func (e *Endpoint) tellWatched(by *watcher) {
	for {
		due := e.watches.take(by)
		if len(due) == 0 {
			return
		}
		for _, one := range due {
			if e.mayBeTold(by.talk.ctx, one) {
				_ = by.talk.server.ResourceUpdated(by.talk.ctx, &mcp.ResourceUpdatedNotificationParams{URI: one.uri}) // a client that is gone misses it
			}
		}
		select {
		case <-by.talk.ctx.Done():
			return
		case <-time.After(restOfNews):
		}
	}
}

// mayBeTold asks the broker whether the agent may read a resource now, which also has it told of the next change. A revoked grant
// silences it; so does a broker that does not answer.
func (e *Endpoint) mayBeTold(ctx context.Context, one *watch) bool {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return e.watches.answered(one, ctx.Err())
	}
	_, err := e.askWatch(ctx, one, false)
	return e.watches.answered(one, err)
}

// renew asks for every subscription again, now and then, until the endpoint closes. One that was refused stays, and is silent until
// it may be told again.
func (e *Endpoint) renew() {
	ticker := time.NewTicker(renewWatches)
	defer ticker.Stop()
	for {
		select {
		case <-e.sessions.ctx.Done():
			return
		case <-ticker.C:
		}
		var group errgroup.Group
		group.SetLimit(asksAtOnce / 2) // news come first
		for _, one := range e.watches.every() {
			group.Go(func() error {
				if owed := e.watches.isOwed(one); e.mayBeTold(one.by.talk.ctx, one) && owed {
					e.watches.again(one, e.startTelling)
				}
				return nil
			})
		}
		_ = group.Wait() // no function of it gives an error
	}
}
