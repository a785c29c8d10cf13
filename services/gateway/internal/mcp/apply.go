package mcp

import (
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Apply takes an event of the control stream: what agents may call may be other than it was, and a token may hold no more.
func (e *Endpoint) Apply(s eventlog.Stored) {
	switch s.At.Noun {
	case "token", "agent", "client":
		e.sessions.doubt(s.At.Tenant, func(who auth.Agent) bool { return e.holds(who) })
		if s.At.Noun == "agent" {
			e.sessions.changed(s.At.Tenant, id.Agent(s.At.Key)) // its tools may be listed another way
		}
		return
	case "grant", "connection":
	default:
		return
	}
	ev, err := s.Envelope.Decode()
	if err != nil {
		return // of a version that this program does not know
	}
	switch ev := ev.(type) {
	case grant.Created:
		e.sessions.changed(s.At.Tenant, ev.Agent)
	case grant.Revoked:
		e.sessions.changed(s.At.Tenant, ev.Agent)
	case connection.Defined:
		e.watches.redefined(s.At.Tenant, ev.Connection, e.startTelling) // it may be another server
		e.sessions.changed(s.At.Tenant, "")
	case connection.Listed:
		e.sessions.changed(s.At.Tenant, "")
	}
}

// holds says whether a session's token is one that the control stream knows as good.
func (e *Endpoint) holds(who auth.Agent) bool {
	token, known := e.State.Token(who.Tenant, who.Token)
	def, there := e.State.Agent(who.Tenant, who.Agent)
	if !there || def.Hosting != agent.External {
		return false
	}
	if who.Client != "" {
		if _, there := e.State.Client(who.Tenant, who.Client); !there {
			return false
		}
	}
	return who.Issuer != "" || known && !token.Revoked
}
