package callpath

import (
	"context"
	"net/url"
	"slices"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// The one tenant, and the tools that its agents are granted.
const (
	tenant = id.Tenant("tnt_bench")
	actor  = "mem_bench"

	execTool  = "machine.exec"
	pureTool  = "bench.read"
	keyedTool = "bench.write"
	hangTool  = "bench.hang"
)

// tenancy says what is configured, under the users that may say so.
type tenancy struct {
	gateway, approvals, agentloop *bus.Conn
}

func newTenancy(ctx context.Context, h *house) (t *tenancy, err error) {
	t = &tenancy{}
	if t.gateway, err = h.connect(ctx, string(schemas.Gateway)); err != nil {
		return nil, err
	}
	if t.approvals, err = h.connect(ctx, string(schemas.Approvals)); err != nil {
		return nil, err
	}
	if t.agentloop, err = h.connect(ctx, string(schemas.Agentloop)); err != nil {
		return nil, err
	}
	u, err := url.Parse(h.provider.URL())
	if err != nil {
		return nil, err
	}
	_, err = rpc.Ask[ask.Sequence](ctx, t.gateway, schemas.Toolbroker, "connection_define",
		rpc.Caller{Tenant: tenant, Actor: actor, Role: string(member.Owner)},
		ask.DefineConnection{Connection: connection.Defined{Connection: "con_bench", Type: connection.MCP, URL: u.String(), Private: []string{u.Host}, Trusted: true}})
	return t, err
}

// agent makes an agent with a grant of each tool, and waits until it may call them.
func (t *tenancy) agent(ctx context.Context, tools ...string) (a id.Agent, grants []given, err error) {
	a = id.New[id.Agent]()
	_, err = eventlog.New(t.gateway).Append(ctx, eventlog.Draft{Tenant: tenant, Key: string(a), Actor: actor,
		Event: agent.Defined{Agent: a, Hosting: agent.Hosted}})
	if err != nil {
		return a, nil, err
	}
	for _, tool := range tools {
		g := given{grant: id.New[id.Grant](), agent: a}
		g.seq, err = eventlog.New(t.approvals).AppendAfter(ctx, eventlog.Draft{Tenant: tenant, Key: string(g.grant), Actor: actor,
			Event: grant.Created{Grant: g.grant, Agent: a, Selector: grant.Selector{Tool: tool}, Approval: grant.Never}}, 0)
		if err != nil {
			return a, nil, err
		}
		grants = append(grants, g)
	}
	err = until(ctx, "the agent's tools are visible", func() bool {
		seen, err := rpc.Ask[ask.VisibleTools](ctx, t.agentloop, schemas.Toolbroker, "tools_visible", rpc.Caller{Tenant: tenant, Actor: string(a)}, ask.Visibility{Agent: a})
		return err == nil && !slices.ContainsFunc(tools, func(tool string) bool {
			return tool != execTool && !slices.ContainsFunc(seen.Tools, func(v ask.VisibleTool) bool { return v.Name == tool })
		})
	})
	return a, grants, err
}

// given is a grant as it was made.
type given struct {
	grant id.Grant
	agent id.Agent
	seq   uint64
}

func (t *tenancy) revoke(ctx context.Context, g given) error {
	_, err := eventlog.New(t.approvals).AppendAfter(ctx, eventlog.Draft{Tenant: tenant, Key: string(g.grant), Actor: actor,
		Event: grant.Revoked{Grant: g.grant, Agent: g.agent}}, g.seq)
	return err
}
