package control

import (
	"net/netip"
	"net/url"
	"slices"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
)

// Bounds of an agent's definition.
const (
	maxInstructions = 64 << 10
	maxEgressRules  = 100
	maxNameLength   = 200
)

// CheckAgent says what is wrong with an agent's definition, before it becomes what every service goes by.
func CheckAgent(a agent.Defined) error {
	invalid := func(format string, args ...any) error { return problem.New(problem.Invalid, format, args...) }
	b := a.Budgets
	switch {
	case a.Removed:
		return invalid("removed is not for definitions; delete the agent instead")
	case a.Hosting != agent.Hosted && a.Hosting != agent.External:
		return invalid("hosting %.40q is not hosted or external", a.Hosting)
	case a.Hosting == agent.External && a.Model.Protocol != "":
		return invalid("an external agent brings its own model")
	case !a.MCP.Tools.Known():
		return invalid("mcp.tools %.40q is not all or lazy", a.MCP.Tools)
	case a.Hosting == agent.Hosted && a.MCP != agent.MCP{}:
		return invalid("a hosted agent is not served over MCP")
	case len(a.Body.Instructions) > maxInstructions:
		return problem.New(problem.TooLarge, "the instructions are over %d bytes", maxInstructions)
	case b.Steps < 0 || b.Calls < 0 || b.Tokens < 0 || a.Model.MaxOutputTokens < 0:
		return invalid("a budget is negative; leave it out for the default")
	case len(a.Runtime.Egress) > maxEgressRules:
		return invalid("an agent has at most %d egress rules", maxEgressRules)
	}
	if a.Hosting == agent.Hosted {
		if err := checkModel(a.Model); err != nil {
			return err
		}
	}
	for _, e := range a.Runtime.Egress {
		if len(e.Hosts) == 0 || slices.Contains(e.Hosts, "") {
			return invalid("an egress rule names the hosts that it is for")
		}
		if !e.Capped() {
			return invalid("an egress rule's caps are from 0, the default, to response_bytes %d, request_bytes %d, timeout_ms %d, fetches %d",
				agent.MaxResponseBytes, agent.MaxRequestBytes, agent.MaxTimeoutMS, agent.MaxFetches)
		}
		if err := checkPrivate(e.Private); err != nil {
			return err
		}
		if _, err := egress.New(egress.Rule{Hosts: e.Hosts, Methods: e.Methods, AllowPrivate: e.Private}); err != nil {
			return err
		}
	}
	return nil
}

func checkModel(m agent.Model) error {
	if m.Protocol != "openai" && m.Protocol != "anthropic" {
		return problem.New(problem.Invalid, "model protocol %.40q is not openai or anthropic", m.Protocol)
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return problem.New(problem.Invalid, "the model's URL is not an http(s) URL without credentials")
	}
	if m.Name == "" || len(m.Name) > maxNameLength {
		return problem.New(problem.Invalid, "a model has a name of at most %d bytes", maxNameLength)
	}
	return checkPrivate(m.Private)
}

func checkPrivate(private []string) error {
	for _, p := range private {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return problem.New(problem.Invalid, "private %.80q is not an address:port", p)
		}
	}
	return nil
}
