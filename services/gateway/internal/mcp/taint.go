package mcp

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
)

// maxOrigins is how many origins of a token's taint are told apart. What comes from more taints no less.
const maxOrigins = 64

// inheritWithin is how long an answer waits until every instance knows that it taints.
const inheritWithin = 8 * time.Second

// tainted is what a call of a conversation is tainted by: what its agent was given before, in it, or by its token without sessions.
func (e *Endpoint) tainted(c *conversation) []string {
	out := append(c.tainted(), e.State.Taint(c.who.Tenant, c.who.Token).Origins...)
	slices.Sort(out)
	return slices.Compact(out)
}

// inherit has a conversation inherit what taints a result, before its client has that. A session is served by one instance, and
// ends with it. Without sessions the next call may be another instance's, or come after a restart: so it is recorded, of the
// token that the conversation is of, and every instance has heard it or answers nobody (fails closed), before the client is
// given what it was not given before. That is once for each token and origin. Problems: pending, when that could not be done.
func (e *Endpoint) inherit(c *conversation, origins []string) *problem.Error {
	if c.session != "" || c.has(origins) {
		c.addTaint(origins)
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, inheritWithin)
	defer cancel()
	known := e.State.Taint(c.who.Tenant, c.who.Token)
	all := slices.Clone(known.Origins)
	for _, o := range origins {
		if !slices.Contains(all, o) && len(all) < maxOrigins {
			all = append(all, o)
		}
	}
	seq := known.Seq
	if len(all) > len(known.Origins) {
		slices.Sort(all)
		var err error
		if seq, err = e.Log.Append(ctx, eventlog.Draft{Tenant: c.who.Tenant, Key: string(c.who.Token), Actor: string(c.who.Agent),
			ID:    id.Derive[id.Event](string(c.who.Tenant), string(c.who.Token), "tainted", strings.Join(all, " ")),
			Event: token.Tainted{Token: c.who.Token, Agent: c.who.Agent, Taint: all}}); err != nil {
			return notInherited(err)
		}
	}
	// A crash here: the client was given nothing, and is tainted too early.
	if _, err := barrier.Among(ctx, e.Conn, c.who.Caller(), seq, schemas.Gateway); err != nil {
		return notInherited(err)
	}
	c.addTaint(origins)
	return nil
}

func notInherited(err error) *problem.Error {
	return problem.Wrap(err, problem.Pending, "the call was made and the ledger has its result, which cannot be given out before it is recorded that the agent read it")
}

// has says whether a conversation inherited all of some origins before.
func (c *conversation) has(origins []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(origins, func(o string) bool { return !slices.Contains(c.taint, o) })
}
