// Package control keeps what the gateway shows and checks of EW_CONTROL.
package control

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// State is what is known of every tenant.
type State struct {
	mu      sync.RWMutex
	tenants map[id.Tenant]*tenant
}

type tenant struct {
	members      map[id.Member]Member
	tokens       map[id.Token]Token
	taints       map[id.Token]Taint // of tokens of other issuers too, which are in tokens no more than they were issued here
	agents       map[id.Agent]agent.Defined
	clients      map[id.Client]client.Defined
	connections  map[id.Connection]connection.Defined
	tools        map[id.Connection][]connection.Tool
	logins       map[id.Connection]connection.LoginChanged
	agentLogins  map[id.Connection]map[id.Agent]connection.LoginChanged // of the agents that have one of their own
	grants       map[id.Grant]Grant
	triggers     map[id.Trigger]trigger.Defined
	environments map[id.Environment]environment.Registered
	targets      map[id.Target]target.Defined
	applied      map[string]uint64 // the highest sequence, per aggregate or per part of it
}

// Grant is a grant with what became of it.
type Grant struct {
	grant.Created
	Revoked bool
	Reason  string
	Seq     uint64
}

// Member is a member with what became of them.
type Member struct {
	Member  id.Member
	Role    member.Role
	Removed bool // for good
	Reason  string
}

// Token is a token with what became of it.
type Token struct {
	token.Issued
	IssuedAt time.Time
	IssuedBy string
	Revoked  bool // for good
	Reason   string
}

// Taint is what an agent was given over a token, and where on the control stream that was said last.
type Taint struct {
	Origins []string
	Seq     uint64
}

// New makes an empty state.
func New() *State { return &State{tenants: map[id.Tenant]*tenant{}} }

// Apply takes one event. Events may come again and, between kinds of one aggregate, out of order: the highest
// sequence counts.
func (s *State) Apply(e eventlog.Stored) error {
	ev, err := e.Envelope.Decode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[e.At.Tenant]
	if t == nil {
		t = &tenant{
			members: map[id.Member]Member{}, tokens: map[id.Token]Token{}, taints: map[id.Token]Taint{}, agents: map[id.Agent]agent.Defined{},
			clients:     map[id.Client]client.Defined{},
			connections: map[id.Connection]connection.Defined{}, tools: map[id.Connection][]connection.Tool{},
			logins: map[id.Connection]connection.LoginChanged{}, agentLogins: map[id.Connection]map[id.Agent]connection.LoginChanged{},
			grants: map[id.Grant]Grant{}, triggers: map[id.Trigger]trigger.Defined{},
			environments: map[id.Environment]environment.Registered{}, targets: map[id.Target]target.Defined{}, applied: map[string]uint64{},
		}
		s.tenants[e.At.Tenant] = t
	}
	part := e.At.Noun + "/" + e.At.Key
	switch e.At.Noun {
	case "connection", "member", "token":
		part = e.At.Kind() + "/" + e.At.Key // defined and listed are two states, not versions of one; a removal is final
	}
	if t.applied[part] >= e.Seq {
		return nil
	}
	t.applied[part] = e.Seq
	switch ev := ev.(type) {
	case member.Added:
		m := t.members[ev.Member]
		m.Member, m.Role = ev.Member, ev.Role
		t.members[ev.Member] = m
	case member.Removed:
		m := t.members[ev.Member]
		m.Member, m.Removed, m.Reason = ev.Member, true, ev.Reason
		t.members[ev.Member] = m
	case token.Issued:
		k := t.tokens[ev.Token]
		k.Issued, k.IssuedAt, k.IssuedBy = ev, e.Envelope.Time, e.Envelope.Actor
		t.tokens[ev.Token] = k
	case token.Revoked:
		k := t.tokens[ev.Token]
		k.Revoked, k.Reason = true, ev.Reason
		t.tokens[ev.Token] = k
	case token.Tainted:
		t.taints[ev.Token] = Taint{Origins: ev.Taint, Seq: e.Seq}
	case agent.Defined:
		t.agents[ev.Agent] = ev
	case client.Defined:
		t.clients[ev.Client] = ev
	case connection.Defined:
		t.connections[ev.Connection] = ev
	case connection.LoginChanged:
		if ev.Agent == "" {
			t.logins[ev.Connection] = ev
			break
		}
		if t.agentLogins[ev.Connection] == nil {
			t.agentLogins[ev.Connection] = map[id.Agent]connection.LoginChanged{}
		}
		t.agentLogins[ev.Connection][ev.Agent] = ev
	case connection.Listed:
		t.tools[ev.Connection] = ev.Body.Tools
	case grant.Created:
		t.grants[ev.Grant] = Grant{Created: ev, Seq: e.Seq}
	case grant.Revoked:
		g := t.grants[ev.Grant]
		g.Grant, g.Agent, g.Revoked, g.Reason, g.Seq = ev.Grant, ev.Agent, true, ev.Reason, e.Seq
		t.grants[ev.Grant] = g
	case trigger.Defined:
		t.triggers[ev.Trigger] = ev
	case target.Defined:
		t.targets[ev.Target] = ev
	case environment.Registered:
		t.environments[ev.Environment] = ev
	}
	return nil
}

// Role gives the role of a member who was not removed.
func (s *State) Role(tenant id.Tenant, m id.Member) (member.Role, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil && !t.members[m].Removed && t.members[m].Role.Valid() {
		return t.members[m].Role, true
	}
	return "", false
}

// Token gives a token that was issued.
func (s *State) Token(tenant id.Tenant, k id.Token) (Token, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		token, ok := t.tokens[k]
		return token, ok && token.Issued.Token != ""
	}
	return Token{}, false
}

// Taint gives what an agent was given over a token.
func (s *State) Taint(tenant id.Tenant, k id.Token) Taint {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		return t.taints[k]
	}
	return Taint{}
}

// Members lists a tenant's members by id, removed ones too.
func (s *State) Members(of id.Tenant) []Member {
	return list(s, of, func(t *tenant) map[id.Member]Member { return t.members }, func(Member) bool { return true })
}

// Tokens lists a tenant's tokens by id, revoked ones too.
func (s *State) Tokens(of id.Tenant) []Token {
	return list(s, of, func(t *tenant) map[id.Token]Token { return t.tokens }, func(k Token) bool { return k.Issued.Token != "" })
}

// Agent gives an agent that was not removed.
func (s *State) Agent(tenant id.Tenant, a id.Agent) (agent.Defined, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		def, ok := t.agents[a]
		return def, ok && !def.Removed
	}
	return agent.Defined{}, false
}

// Agents lists a tenant's agents by id.
func (s *State) Agents(of id.Tenant) []agent.Defined {
	return list(s, of, func(t *tenant) map[id.Agent]agent.Defined { return t.agents }, func(a agent.Defined) bool { return !a.Removed })
}

// Client gives a client, also one that was removed; ok says that it was not.
func (s *State) Client(tenant id.Tenant, c id.Client) (def client.Defined, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		def, ok = t.clients[c]
	}
	return def, ok && !def.Removed
}

// Clients lists a tenant's clients by id.
func (s *State) Clients(of id.Tenant) []client.Defined {
	return list(s, of, func(t *tenant) map[id.Client]client.Defined { return t.clients }, func(c client.Defined) bool { return !c.Removed })
}

// Targets lists a tenant's targets of notices by id.
func (s *State) Targets(of id.Tenant) []target.Defined {
	return list(s, of, func(t *tenant) map[id.Target]target.Defined { return t.targets }, func(t target.Defined) bool { return !t.Removed })
}

// Connections lists a tenant's connections by id.
func (s *State) Connections(of id.Tenant) []connection.Defined {
	return list(s, of, func(t *tenant) map[id.Connection]connection.Defined { return t.connections }, func(c connection.Defined) bool { return !c.Removed })
}

// Connection gives a connection that was not removed.
func (s *State) Connection(tenant id.Tenant, c id.Connection) (connection.Defined, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		def, ok := t.connections[c]
		return def, ok && !def.Removed
	}
	return connection.Defined{}, false
}

// Login gives the state of a connection's login. One that needs a member, and that nobody has logged in to yet, says so.
func (s *State) Login(of id.Tenant, c connection.Defined) connection.LoginChanged {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[of]; t != nil {
		if ev, ok := t.logins[c.Connection]; ok && ev.URL == c.URL && reflect.DeepEqual(ev.OAuth, c.OAuth) {
			return ev
		}
	}
	ev := connection.LoginChanged{Connection: c.Connection, URL: c.URL, OAuth: c.OAuth, State: connection.LoginNeeded, Reason: "nobody has logged in yet"}
	if c.OAuth.Flow == connection.ClientCredentials {
		ev.State, ev.Reason = connection.LoggedIn, ""
	}
	return ev
}

// AgentLogins lists the logins that agents have of their own on a connection as it is defined, by agent.
func (s *State) AgentLogins(of id.Tenant, c connection.Defined) []connection.LoginChanged {
	return list(s, of, func(t *tenant) map[id.Agent]connection.LoginChanged { return t.agentLogins[c.Connection] }, func(ev connection.LoginChanged) bool {
		return ev.URL == c.URL && reflect.DeepEqual(ev.OAuth, c.OAuth)
	})
}

// Tools lists the tools that a connection was last seen to have.
func (s *State) Tools(of id.Tenant, c id.Connection) []connection.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[of]; t != nil {
		return t.tools[c]
	}
	return nil
}

// Grants lists a tenant's grants by id, revoked ones too: people look them up after an incident.
func (s *State) Grants(of id.Tenant) []Grant {
	return list(s, of, func(t *tenant) map[id.Grant]Grant { return t.grants }, func(Grant) bool { return true })
}

// Triggers lists a tenant's triggers by id.
func (s *State) Triggers(of id.Tenant) []trigger.Defined {
	return list(s, of, func(t *tenant) map[id.Trigger]trigger.Defined { return t.triggers }, func(d trigger.Defined) bool { return !d.Removed })
}

// Environments lists a tenant's environments by id.
func (s *State) Environments(of id.Tenant) []environment.Registered {
	return list(s, of, func(t *tenant) map[id.Environment]environment.Registered { return t.environments }, func(e environment.Registered) bool { return !e.Removed })
}

func list[K cmp.Ordered, V any](s *State, of id.Tenant, from func(*tenant) map[K]V, keep func(V) bool) []V {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []V{}
	t := s.tenants[of]
	if t == nil {
		return out
	}
	all := from(t)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if v := all[k]; keep(v) {
			out = append(out, v)
		}
	}
	return out
}
