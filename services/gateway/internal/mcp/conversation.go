package mcp

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// conversation is what an external agent's calls are of, as a hosted agent's are of a run: a session, or without sessions
// what one token does for a while.
type conversation struct {
	who        auth.Agent
	connection string // the one that is served; empty: all
	session    string // the protocol's id of it; empty: the protocol has none
	server     *mcp.Server
	names      names

	ctx  context.Context // ends with the conversation, and everything that is under way in it
	over context.CancelFunc

	open int       // requests under way, of one without a session; guarded by sessions
	used time.Time // the same

	mu    sync.Mutex
	id    id.Conversation
	calls int
	began time.Time
	taint []string
	held  map[string]held // calls that wait for a person, by what was asked for
	shown []id.Call       // whose approval the client was shown
	tasks bool            // the session's version has tasks
}

// Bounds of a conversation without a session: its calls are on one subject.
const (
	maxCalls = 512
	maxAge   = time.Hour
)

// run is what the next call is said under. Without sessions a new conversation begins now and then; what the agent has read
// goes with it.
func (c *conversation) run(now time.Time) id.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" || c.session == "" && (c.calls >= maxCalls || now.Sub(c.began) > maxAge) {
		c.id, c.calls, c.began = id.New[id.Conversation](), 0, now
	}
	c.calls++
	return c.id.Run()
}

func (c *conversation) tainted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taint)
}

func (c *conversation) addTaint(origins []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range origins {
		if !slices.Contains(c.taint, o) {
			c.taint = append(c.taint, o)
		}
	}
}

func (c *conversation) sessionID() string { return c.session }

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

// maxRates is how many agents' rates are remembered. Forgetting one lets its agent begin with a whole burst again.
const maxRates = 10_000

// tooFast is a call above the agent's rate.
type tooFast struct {
	why   *problem.Error
	after time.Duration // until one more may be made
}

func (t *tooFast) Error() string { return t.why.Error() }

// Unwrap lets the problem be found.
func (t *tooFast) Unwrap() error { return t.why }

// enter counts a call of an agent, or what it asks the broker otherwise. Problems: busy.
func (s *sessions) enter(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	leave, err = s.count(s.atOnce, who, l.AtOnce, "calls and lists under way")
	if err != nil {
		return nil, err
	}
	if err := s.pace(s.rates, who, l.Rate, l.Burst, "calls and lists", now); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// pace counts one of what against the agent's rate of those, per second; 0: as many as it likes.
func (s *sessions) pace(of map[agentKey]*rate.Limiter, who auth.Agent, most, burst int, what string, now time.Time) error {
	key := agentKey{who.Tenant, who.Agent}
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := of[key]
	if rates == nil && most > 0 {
		if len(of) >= maxRates {
			clear(of)
		}
		rates = rate.NewLimiter(rate.Limit(most), burst)
		of[key] = rates
	}
	if rates != nil && !rates.AllowN(now, 1) {
		after := max(time.Duration((1-rates.TokensAt(now))/float64(most)*float64(time.Second)).Round(time.Millisecond), time.Millisecond)
		return &tooFast{problem.New(problem.Busy, "the agent makes more than %d %s per second at this instance; try again in %s", most, what, after), after}
	}
	return nil
}

// listen counts a stream of news.
func (s *sessions) listen(who auth.Agent, most int) (leave func(), err error) {
	return s.count(s.streams, who, most, "streams open")
}

// looksPerCall is how many requests about tasks an agent may make for every call that it may: clients look at each task again and
// again. Each reads what was recorded since the task began, so they are not for nothing.
const looksPerCall = 4

// poll counts a request about a task. It does not count as a call: a client asks after many, and a call is not refused for that.
// Problems: busy.
func (s *sessions) poll(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	return s.look(s.polls, who, l, "requests about tasks under way", now)
}

// await counts a request that waits for a task's end, which takes as long as a person does. Whoever waits for many can still ask
// about one, and cancel it. Problems: busy.
func (s *sessions) await(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	return s.look(s.waits, who, l, "tasks waited for", now)
}

func (s *sessions) look(of map[agentKey]int, who auth.Agent, l Limits, what string, now time.Time) (leave func(), err error) {
	leave, err = s.count(of, who, l.AtOnce, what)
	if err != nil {
		return nil, err
	}
	if err := s.pace(s.looks, who, looksPerCall*l.Rate, looksPerCall*l.Burst, "requests about tasks", now); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (s *sessions) count(of map[agentKey]int, who auth.Agent, most int, what string) (leave func(), err error) {
	key := agentKey{who.Tenant, who.Agent}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[key] >= most {
		return nil, problem.New(problem.Busy, "the agent has %d %s at this instance, which is the most; try again when some have ended", most, what)
	}
	of[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if of[key]--; of[key] == 0 {
			delete(of, key)
		}
	}, nil
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

// announce has the SDK say that the lists changed: it does when what it knows of changes.
func announce(server *mcp.Server) {
	server.AddTool(&mcp.Tool{Name: placeholder, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errPlaceholder
	})
	server.AddPrompt(&mcp.Prompt{Name: placeholder}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return nil, errPlaceholder
	})
	server.AddResource(&mcp.Resource{Name: placeholder, URI: placeholder + ":/"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, errPlaceholder
	})
	server.RemoveTools(placeholder)
	server.RemovePrompts(placeholder)
	server.RemoveResources(placeholder + ":/")
}

// placeholder is never listed or called.
const placeholder = "placeholder"

var errPlaceholder = problem.New(problem.NotFound, "there is no such thing")
