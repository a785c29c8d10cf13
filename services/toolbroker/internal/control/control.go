// Package control keeps what the broker decides on: agents, grants, connections and their tools, as the control
// stream has them.
package control

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/folded"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// State is what is known of every tenant.
type State struct {
	mu      sync.RWMutex
	tenants map[id.Tenant]*tenant
}

type tenant struct {
	agents      map[id.Agent]agent.Defined
	holders     map[id.Grant]id.Agent // of active grants
	grants      map[id.Agent]*grants
	connections map[id.Connection]connection.Defined
	tools       map[id.Connection]listed
	logins      map[loginKey]connection.LoginChanged
	packages    map[id.Connection]connection.Packaged
	members     map[id.Member]member.Role
	removed     map[id.Member]bool
	seqs        map[string]uint64 // per aggregate and kind: what is applied
}

// listed is what a connection was last seen to have.
type listed struct {
	tools []connection.Tool
	repos []bool         // of each, whether a grant's repos bound it
	at    map[string]int // by name
}

func newListed(tools []connection.Tool) listed {
	l := listed{tools: tools, at: make(map[string]int, len(tools))}
	for i, t := range tools {
		l.repos = append(l.repos, aboutRepo(t))
		l.at[t.Name] = i
	}
	return l
}

// New makes an empty state.
func New() *State { return &State{tenants: map[id.Tenant]*tenant{}} }

// Apply takes one event. Events may come again and, between kinds of one aggregate, out of order: the highest
// sequence counts.
func (s *State) Apply(e eventlog.Stored) {
	ev, err := e.Envelope.Decode()
	if err != nil {
		return // of no kind that matters here
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[e.At.Tenant]
	if t == nil {
		t = &tenant{
			agents: map[id.Agent]agent.Defined{}, holders: map[id.Grant]id.Agent{}, grants: map[id.Agent]*grants{},
			connections: map[id.Connection]connection.Defined{}, tools: map[id.Connection]listed{},
			logins: map[loginKey]connection.LoginChanged{}, packages: map[id.Connection]connection.Packaged{}, members: map[id.Member]member.Role{}, removed: map[id.Member]bool{}, seqs: map[string]uint64{},
		}
		s.tenants[e.At.Tenant] = t
	}
	if gone, ok := ev.(member.Removed); ok {
		t.removed[gone.Member] = true // for good, whatever else is heard
		return
	}
	applied := e.At.Noun + "/" + e.At.Key
	if e.At.Noun == "connection" {
		applied = e.At.Kind() + "/" + e.At.Key // defined, packaged and listed are states of their own, not versions of one
	}
	if t.seqs[applied] >= e.Seq {
		return
	}
	t.seqs[applied] = e.Seq
	switch ev := ev.(type) {
	case member.Added:
		t.members[ev.Member] = ev.Role
	case agent.Defined:
		t.agents[ev.Agent] = ev
	case grant.Created:
		t.take(ev.Grant)
		t.give(policy.Grant{Created: ev, Seq: e.Seq, At: e.Envelope.Time})
	case grant.Revoked:
		t.take(ev.Grant)
	case connection.Defined:
		t.connections[ev.Connection] = ev
	case connection.Packaged:
		t.packages[ev.Connection] = ev
	case connection.LoginChanged:
		t.logins[loginKey{ev.Connection, ev.Agent}] = ev
	case connection.Listed:
		t.tools[ev.Connection] = newListed(ev.Body.Tools)
	}
}

// Known gathers what a decision on one tool of one agent rests on.
func (s *State) Known(tenant id.Tenant, a id.Agent, tool string) policy.Known {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tenants[tenant]
	if t == nil {
		return policy.Known{}
	}
	k := policy.Known{Tool: t.tool(tool), Grants: t.grants[a].sorted()}
	if k.Tool != nil && k.Tool.Folded {
		name, _, _ := strings.Cut(tool, ".")
		k.Behind = t.toolsOf(id.Connection("con_" + name))
	}
	if def, ok := t.agents[a]; ok {
		k.Agent = &def
	}
	return k
}

// Connection gives a connection by the name in front of its tools.
func (s *State) Connection(tenant id.Tenant, name string) (connection.Defined, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		c, ok := t.connections[id.Connection("con_"+name)]
		return c, ok && !c.Removed
	}
	return connection.Defined{}, false
}

// Owned is a connection with the tenant that it belongs to.
type Owned struct {
	Tenant id.Tenant
	connection.Defined
}

// Connections lists the connections of all tenants.
func (s *State) Connections() (out []Owned) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for tenant, t := range s.tenants {
		for _, c := range t.connections {
			if !c.Removed {
				out = append(out, Owned{tenant, c})
			}
		}
	}
	return out
}

// ConnectionsOf lists a tenant's connections.
func (s *State) ConnectionsOf(of id.Tenant) (out []connection.Defined) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[of]; t != nil {
		for _, c := range t.connections {
			if !c.Removed {
				out = append(out, c)
			}
		}
	}
	return out
}

// Role is what a member may do now; nothing when they were removed. Of whom nothing was heard, nothing was taken away.
func (s *State) Role(tenant id.Tenant, m id.Member) member.Role {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tenants[tenant]
	switch {
	case t == nil:
	case t.removed[m]:
		return ""
	case t.members[m] != "":
		return t.members[m]
	}
	return member.Owner
}

// Tenants lists the tenants that anything was heard of.
func (s *State) Tenants() []id.Tenant {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.tenants))
}

// Credentials lists a tenant's connections that have, or had, a credential.
func (s *State) Credentials(tenant id.Tenant) (out []id.Connection) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		out = slices.Collect(maps.Keys(t.connections))
	}
	return out
}

// Package gives the API package of a connection.
func (s *State) Package(tenant id.Tenant, c id.Connection) (connection.Packaged, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		p, ok := t.packages[c]
		return p, ok
	}
	return connection.Packaged{}, false
}

// loginKey tells logins apart. Without an agent it is the connection's own.
type loginKey struct {
	connection id.Connection
	agent      id.Agent
}

// AgentLogin is a login of one agent's own.
type AgentLogin struct {
	Tenant id.Tenant
	connection.LoginChanged
}

// AgentLogins lists the logins that agents have of their own and that nobody has ended.
func (s *State) AgentLogins() (out []AgentLogin) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for tenant, t := range s.tenants {
		for key, ev := range t.logins {
			if key.agent != "" && ev.State == connection.LoggedIn {
				out = append(out, AgentLogin{tenant, ev})
			}
		}
	}
	return out
}

// Agents lists a tenant's agents, removed ones too.
func (s *State) Agents(of id.Tenant) []id.Agent {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[of]; t != nil {
		return slices.Sorted(maps.Keys(t.agents))
	}
	return nil
}

// Login gives what was last said of a connection's login, or of an agent's on it.
func (s *State) Login(tenant id.Tenant, c id.Connection, a id.Agent) (connection.LoginChanged, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		ev, ok := t.logins[loginKey{c, a}]
		return ev, ok
	}
	return connection.LoginChanged{}, false
}

// Listed gives the tools that a connection was last seen to have.
func (s *State) Listed(tenant id.Tenant, c id.Connection) []connection.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		return t.tools[c].tools
	}
	return nil
}

// ToolsOf lists a connection's own tools.
func (s *State) ToolsOf(tenant id.Tenant, c id.Connection) []policy.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		return t.toolsOf(c)
	}
	return nil
}

// Tools lists every tool of a tenant by full name, built-in ones included.
func (s *State) Tools(tenant id.Tenant) []policy.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Clone(builtin)
	if t := s.tenants[tenant]; t != nil {
		for c := range t.tools {
			out = append(out, t.toolsOf(c)...)
		}
	}
	slices.SortFunc(out, func(a, b policy.Tool) int { return cmp.Compare(a.Full, b.Full) })
	return out
}

func (t *tenant) tool(full string) *policy.Tool {
	for _, b := range builtin {
		if b.Full == full {
			return &b
		}
	}
	name, short, ok := strings.Cut(full, ".")
	con := id.Connection("con_" + name)
	def, defined := t.connections[con]
	if !ok || !defined || def.Removed {
		return nil
	}
	has := t.tools[con]
	if i, ok := has.at[short]; ok {
		return has.tool(def, i)
	}
	if def.Type == connection.MCP && connection.Method(short) {
		return method(full, short)
	}
	if connection.Folded(short) && len(has.tools) >= folded.From {
		three := folded.Tools()
		i := slices.IndexFunc(three, func(t connection.Tool) bool { return t.Name == short })
		return &policy.Tool{Tool: three[i], Full: full, Route: call.Upstream, Folded: true}
	}
	return nil
}

// method is what is decided on where a client calls a method of an MCP server.
func method(full, name string) *policy.Tool {
	return &policy.Tool{Full: full, Route: call.Upstream, Method: true,
		Tool: connection.Tool{Name: name, Effect: connection.Pure, Schema: json.RawMessage(`{"type":"object"}`)}}
}

// toolsOf lists a connection's own tools.
func (t *tenant) toolsOf(c id.Connection) (out []policy.Tool) {
	def, has := t.connections[c], t.tools[c]
	if def.Connection == "" || def.Removed {
		return nil
	}
	for i := range has.tools {
		out = append(out, *has.tool(def, i))
	}
	return out
}

func (l listed) tool(def connection.Defined, i int) *policy.Tool {
	t := l.tools[i]
	return &policy.Tool{Tool: t, Full: id.Name(def.Connection) + "." + t.Name, Route: call.Upstream, GitHub: def.Type == connection.GitHub && l.repos[i]}
}

// aboutRepo says whether a tool has the arguments that a grant's repos bound. One whose schema cannot be read counts as
// having them: then no call of it is in bounds.
func aboutRepo(t connection.Tool) bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(t.Schema, &schema) != nil {
		return true
	}
	return schema.Properties["owner"] != nil || schema.Properties["repo"] != nil
}

// Grants lists the active grants of a tenant by id.
func (s *State) Grants(tenant id.Tenant) (out []policy.Grant) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		for _, g := range t.grants {
			out = append(out, g.sorted()...)
		}
	}
	slices.SortFunc(out, func(a, b policy.Grant) int { return cmp.Compare(a.Created.Grant, b.Created.Grant) })
	return out
}

// grants are the active ones of one agent.
type grants struct {
	of     map[id.Grant]policy.Grant
	listed atomic.Pointer[[]policy.Grant] // by id, once somebody asked; not written to again
}

// sorted lists them, however often it is asked, at the price of one listing a change.
func (g *grants) sorted() []policy.Grant {
	if g == nil {
		return nil
	}
	if l := g.listed.Load(); l != nil {
		return *l
	}
	l := slices.SortedFunc(maps.Values(g.of), func(a, b policy.Grant) int { return cmp.Compare(a.Created.Grant, b.Created.Grant) })
	g.listed.Store(&l)
	return l
}

// give adds an active grant.
func (t *tenant) give(g policy.Grant) {
	of := t.grants[g.Agent]
	if of == nil {
		of = &grants{of: map[id.Grant]policy.Grant{}}
		t.grants[g.Agent] = of
	}
	of.of[g.Created.Grant] = g
	of.listed.Store(nil)
	t.holders[g.Created.Grant] = g.Agent
}

// take takes a grant away from whoever holds it.
func (t *tenant) take(name id.Grant) {
	a, ok := t.holders[name]
	if !ok {
		return
	}
	delete(t.holders, name)
	of := t.grants[a]
	delete(of.of, name)
	of.listed.Store(nil)
}

// Reserved lists the names in front of built-in tools; no connection may be called so.
func Reserved() []string { return []string{"runtime", machine.Connection} }

// builtin lists the tools that are no connection's: the runtime's and an attached machine's.
var builtin = append([]policy.Tool{
	{Full: "runtime.run_javascript", Route: call.Script, Tool: connection.Tool{
		Name: "run_javascript", Effect: connection.Keyed,
		Description: "Run JavaScript (or TypeScript) in a sandbox without files, shell or network. The source is a function body: use await and return. " +
			"tools.<connection>.<tool>({...}) calls a granted tool; tools.search(\"words\") lists {name, description}, tools.describe(name) its types. " +
			"fetch(url) works where the agent's egress rule allows it; a response also has markdown() and plain() for HTML. " +
			"artifacts.put(name, value), get, list and delete keep text, JSON or bytes for later scripts of the session.",
		Schema: json.RawMessage(`{"type":"object","properties":{"source":{"type":"string","description":"function body; return the result"},"input":{"type":"object","description":"what the source finds as its global input"}},"required":["source"],"additionalProperties":false}`),
	}},
}, ofMachine()...)

func ofMachine() (out []policy.Tool) {
	for _, t := range machine.Tools() {
		out = append(out, policy.Tool{Full: machine.Connection + "." + t.Name, Route: call.Exec, Tool: t})
	}
	return out
}
