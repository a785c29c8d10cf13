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

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// State is what is known of every tenant.
type State struct {
	mu      sync.RWMutex
	tenants map[id.Tenant]*tenant
}

type tenant struct {
	agents      map[id.Agent]agent.Defined
	grants      map[id.Grant]held
	connections map[id.Connection]connection.Defined
	tools       map[id.Connection][]connection.Tool
	packages    map[id.Connection]connection.Packaged
	seqs        map[string]uint64 // per aggregate and kind: what is applied
}

// held is the last that was said of a grant, active or revoked.
type held struct {
	policy.Grant
	active bool
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
		t = &tenant{map[id.Agent]agent.Defined{}, map[id.Grant]held{}, map[id.Connection]connection.Defined{}, map[id.Connection][]connection.Tool{}, map[id.Connection]connection.Packaged{}, map[string]uint64{}}
		s.tenants[e.At.Tenant] = t
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
	case agent.Defined:
		t.agents[ev.Agent] = ev
	case grant.Created:
		t.grants[ev.Grant] = held{policy.Grant{Created: ev, Seq: e.Seq, At: e.Envelope.Time}, true}
	case grant.Revoked:
		t.grants[ev.Grant] = held{policy.Grant{Created: grant.Created{Grant: ev.Grant, Agent: ev.Agent}, Seq: e.Seq}, false}
	case connection.Defined:
		t.connections[ev.Connection] = ev
	case connection.Packaged:
		t.packages[ev.Connection] = ev
	case connection.Listed:
		t.tools[ev.Connection] = ev.Body.Tools
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
	k := policy.Known{Tool: t.tool(tool), Grants: t.grantsOf(a)}
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

// Listed gives the tools that a connection was last seen to have.
func (s *State) Listed(tenant id.Tenant, c id.Connection) []connection.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[tenant]; t != nil {
		return t.tools[c]
	}
	return nil
}

// Tools lists every tool of a tenant by full name, built-in ones included.
func (s *State) Tools(tenant id.Tenant) []policy.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Clone(builtin)
	if t := s.tenants[tenant]; t != nil {
		for c, tools := range t.tools {
			if def := t.connections[c]; def.Connection == "" || def.Removed {
				continue
			}
			for _, tool := range tools {
				if full := t.tool(id.Name(c) + "." + tool.Name); full != nil {
					out = append(out, *full)
				}
			}
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
	for _, tool := range t.tools[con] {
		if tool.Name == short {
			return &policy.Tool{Tool: tool, Full: full, Route: call.Upstream, GitHub: def.Type == connection.GitHub && aboutRepo(tool)}
		}
	}
	return nil
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

func (t *tenant) grantsOf(a id.Agent) []policy.Grant {
	var out []policy.Grant
	for _, g := range t.grants {
		if g.active && g.Agent == a {
			out = append(out, g.Grant)
		}
	}
	slices.SortFunc(out, func(a, b policy.Grant) int { return cmp.Compare(a.Created.Grant, b.Created.Grant) })
	return out
}

// Reserved lists the names in front of built-in tools; no connection may be called so.
func Reserved() []string { return []string{"runtime", "machine"} }

// builtin lists the tools that are no connection's: the runtime's and an attached machine's.
var builtin = []policy.Tool{
	{Full: "runtime.run_javascript", Route: call.Script, Tool: connection.Tool{
		Name: "run_javascript", Effect: connection.Keyed,
		Description: "Run JavaScript (or TypeScript) in a sandbox without files, shell or network. The source is a function body: use await and return. " +
			"tools.<connection>.<tool>({...}) calls a granted tool; fetch(url) works where the agent's egress rule allows it.",
		Schema: json.RawMessage(`{"type":"object","properties":{"source":{"type":"string","description":"function body; return the result"}},"required":["source"],"additionalProperties":false}`),
	}},
	{Full: "machine.exec", Route: call.Exec, Tool: connection.Tool{
		Name: "exec", Effect: connection.Opaque, Writes: true,
		Description: "Run a command on the machine that is attached to this run.",
		Schema:      json.RawMessage(`{"type":"object","properties":{"argv":{"type":"array","items":{"type":"string"},"minItems":1}},"required":["argv"],"additionalProperties":false}`),
	}},
}
