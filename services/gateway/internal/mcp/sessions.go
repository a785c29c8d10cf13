package mcp

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// sessions are the conversations of this instance.
type sessions struct {
	mu      sync.Mutex
	by      map[string]*conversation // with a session, by its id
	tokens  map[tokenKey]*conversation
	atOnce  map[agentKey]int
	rates   map[agentKey]*rate.Limiter
	streams map[agentKey]int           // that wait for news, without sessions
	polls   map[agentKey]int           // requests about tasks
	waits   map[agentKey]int           // those that wait for a task's end
	looks   map[agentKey]*rate.Limiter // of both
	stale   map[*conversation]struct{} // to be told that their lists changed
	telling bool
	closed  bool
	waiting sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

type agentKey struct {
	tenant id.Tenant
	agent  id.Agent
}

// tokenKey tells conversations without sessions apart.
type tokenKey struct {
	token      id.Token
	connection string
}

// maxTokens is how many conversations without sessions are remembered. The one that was used longest ago is forgotten, of
// those in which nothing is under way.
const maxTokens = 10_000

func newSessions() *sessions {
	s := &sessions{by: map[string]*conversation{}, tokens: map[tokenKey]*conversation{}, atOnce: map[agentKey]int{}, streams: map[agentKey]int{}, polls: map[agentKey]int{}, waits: map[agentKey]int{}, looks: map[agentKey]*rate.Limiter{}, stale: map[*conversation]struct{}{}, rates: map[agentKey]*rate.Limiter{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *sessions) find(session string) *conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[session]
}

// begin makes the conversation of a new session. It is known once the client has begun it.
func (s *sessions) begin(who auth.Agent, connection string) *conversation {
	return s.talk(who, connection, auth.NewSecret("ews_").Reveal())
}

func (s *sessions) talk(who auth.Agent, connection, session string) *conversation {
	c := &conversation{who: who, connection: connection, session: session, held: map[string]held{}, began: time.Now()}
	if who.ExpiresAt.IsZero() || who.Client != "" || who.Issuer != "" {
		c.ctx, c.over = context.WithCancel(s.ctx)
	} else { // nothing renews the token
		c.ctx, c.over = context.WithDeadline(s.ctx, who.ExpiresAt)
	}
	return c
}

// without gives the conversation of a token where the protocol has no sessions, made by serve when it is new. leave says
// that the request is over.
func (s *sessions) without(who auth.Agent, connection string, serve func(*conversation)) (c *conversation, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tokenKey{who.Token, connection}
	c = s.tokens[key]
	if c == nil {
		if len(s.tokens) >= maxTokens {
			s.forgetOldest()
		}
		c = s.talk(who, connection, "")
		serve(c)
		s.tokens[key] = c
	}
	c.open++
	c.used = time.Now()
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.open--
	}
}

func (s *sessions) forgetOldest() {
	var oldest tokenKey
	var found *conversation
	for k, c := range s.tokens {
		if c.open == 0 && (found == nil || c.used.Before(found.used)) {
			oldest, found = k, c
		}
	}
	if found != nil {
		found.over()
		delete(s.tokens, oldest)
	}
}

// admit makes room for a session before the client has it. Problems: busy.
func (s *sessions) admit(c *conversation, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := 0
	for _, other := range s.by {
		if other.who.Tenant == c.who.Tenant && other.who.Agent == c.who.Agent {
			of++
		}
	}
	if of >= most {
		return problem.New(problem.Busy, "the agent has %d sessions open at this instance, which is the most", of)
	}
	s.by[c.session] = c
	return nil
}

// forget lets go of a session that ended, or never began.
func (s *sessions) forget(c *conversation) {
	s.mu.Lock()
	delete(s.by, c.session)
	s.mu.Unlock()
	c.over()
}

// keep remembers a session that was admitted until it ends.
func (s *sessions) keep(c *conversation, session *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.over()
		return
	}
	s.waiting.Go(func() {
		// Closing waits for what is under way, which ends with the conversation too.
		defer context.AfterFunc(c.ctx, func() { _ = session.Close() })() // it may have ended
		_ = session.Wait()                                               // however it ended, it did
		s.forget(c)
	})
}

// changed has the conversations of an agent, or with none of a whole tenant, told that their lists are others now. They are
// told apart: it is on the way of every revocation, which waits for nobody's list.
func (s *sessions) changed(tenant id.Tenant, a id.Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all() {
		if c.who.Tenant == tenant && (a == "" || c.who.Agent == a) {
			s.stale[c] = struct{}{}
		}
	}
	if len(s.stale) > 0 && !s.telling && !s.closed {
		s.telling = true
		s.waiting.Go(s.tell)
	}
}

// tell tells those whose lists changed until there are none. What changes again meanwhile is told once.
func (s *sessions) tell() {
	for {
		s.mu.Lock()
		stale := s.stale
		s.stale = map[*conversation]struct{}{}
		if s.telling = len(stale) > 0; !s.telling {
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for c := range stale {
			if c.ctx.Err() == nil {
				announce(c.server)
			}
		}
	}
}

// doubt ends the conversations whose token does not hold any more. It waits for nothing: it is on the way of every
// revocation.
func (s *sessions) doubt(tenant id.Tenant, holds func(auth.Agent) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all() {
		if c.who.Tenant == tenant && !holds(c.who) {
			c.over()
		}
	}
	for key, c := range s.tokens {
		if c.ctx.Err() != nil {
			delete(s.tokens, key)
		}
	}
}

// all gives the conversations that are known, with sessions and without.
func (s *sessions) all() iter.Seq[*conversation] {
	return func(yield func(*conversation) bool) {
		for _, c := range s.by {
			if !yield(c) {
				return
			}
		}
		for _, c := range s.tokens {
			if !yield(c) {
				return
			}
		}
	}
}

// apart runs what closing waits for, unless it has begun.
func (s *sessions) apart(run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.waiting.Go(run)
	}
}

func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.waiting.Wait()
}
