package manifest

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// maxInstructions is the longest instructions, in bytes.
const maxInstructions = 64 << 10

type agentFields struct {
	Header       `yaml:",inline"`
	Hosting      agent.Hosting `yaml:"hosting"` // default: hosted
	Model        *modelFields  `yaml:"model"`
	Instructions string        `yaml:"instructions"`
	Runtime      struct {
		Enabled bool           `yaml:"enabled"`
		Egress  []egressFields `yaml:"egress"`
	} `yaml:"runtime"`
	MCP struct {
		Tools agent.Listing `yaml:"tools"` // default: all
	} `yaml:"mcp"`
	Budgets struct {
		Steps  int `yaml:"steps"`
		Calls  int `yaml:"calls"`
		Tokens int `yaml:"tokens"`
	} `yaml:"budgets"`
}

type modelFields struct {
	Protocol        string     `yaml:"protocol"`
	URL             string     `yaml:"url"`
	Name            string     `yaml:"name"`
	MaxOutputTokens int        `yaml:"max_output_tokens"`
	Private         []string   `yaml:"private"`
	Key             *secretRef `yaml:"key"`
}

type egressFields struct {
	Hosts         []string `yaml:"hosts"`
	Methods       []string `yaml:"methods"`
	Private       []string `yaml:"private"`
	ResponseBytes int      `yaml:"response_bytes"`
	RequestBytes  int      `yaml:"request_bytes"`
	TimeoutMS     int      `yaml:"timeout_ms"`
	Fetches       int      `yaml:"fetches"`
}

func buildAgent(d *document) (r Resource) {
	f, ok := fields[agentFields](d)
	if !ok {
		return r
	}
	def := agent.Defined{
		Agent: named[id.Agent](d), Hosting: f.Hosting,
		Runtime: agent.Runtime{Enabled: f.Runtime.Enabled},
		Budgets: agent.Budgets(f.Budgets),
		MCP:     agent.MCP(f.MCP),
		Body:    agent.Body{Instructions: f.Instructions},
	}
	if def.Hosting == "" {
		def.Hosting = agent.Hosted
	}
	for _, e := range f.Runtime.Egress {
		def.Runtime.Egress = append(def.Runtime.Egress, agent.Egress(e))
	}
	if f.Model != nil {
		m := f.Model
		def.Model = agent.Model{Protocol: m.Protocol, URL: m.URL, Name: m.Name, MaxOutputTokens: m.MaxOutputTokens, Private: m.Private}
		r.Secret = d.secret("$.model.key", m.Key)
	}
	d.checkAgent(def, f.Model != nil)
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, key string) error { return api.PutAgent(ctx, def, key) }
	return r
}

func (d *document) checkAgent(a agent.Defined, hasModel bool) {
	switch {
	case a.Hosting != agent.Hosted && a.Hosting != agent.External:
		d.fault("$.hosting", "hosting %.40q is not hosted or external", a.Hosting)
	case !a.MCP.Tools.Known():
		d.fault("$.mcp.tools", "tools %.40q is not all or lazy", a.MCP.Tools)
	case a.Hosting == agent.Hosted && a.MCP != agent.MCP{}:
		d.fault("$.mcp", "a hosted agent is not served over MCP")
	case a.Hosting == agent.External && hasModel:
		d.fault("$.model", "an external agent brings its own model")
	case a.Hosting == agent.Hosted && !hasModel:
		d.fault("$", "a hosted agent needs a model: with protocol, url and name")
	case hasModel:
		d.checkModel(a.Model)
	}
	if len(a.Body.Instructions) > maxInstructions {
		d.fault("$.instructions", "the instructions are over %d bytes", maxInstructions)
	}
	for _, e := range a.Runtime.Egress {
		if len(e.Hosts) == 0 || slices.Contains(e.Hosts, "") {
			d.fault("$.runtime.egress", "an egress rule names the hosts that it is for")
		}
		if !e.Capped() {
			d.fault("$.runtime.egress", "the caps are from 0, the default, to response_bytes %d, request_bytes %d, timeout_ms %d, fetches %d",
				agent.MaxResponseBytes, agent.MaxRequestBytes, agent.MaxTimeoutMS, agent.MaxFetches)
		}
		d.private("$.runtime.egress", e.Private)
		if _, err := egress.New(egress.Rule{Hosts: e.Hosts, Methods: e.Methods}); err != nil && len(e.Hosts) > 0 {
			d.fault("$.runtime.egress", "%s", problem.DetailOf(err).Message)
		}
	}
	if b := a.Budgets; b.Steps < 0 || b.Calls < 0 || b.Tokens < 0 {
		d.fault("$.budgets", "a budget is negative; leave it out for the default")
	}
}

func (d *document) checkModel(m agent.Model) {
	if m.Protocol != "openai" && m.Protocol != "anthropic" {
		d.fault("$.model.protocol", "protocol %.40q is not openai or anthropic", m.Protocol)
	}
	d.httpURL("$.model.url", m.URL)
	if m.Name == "" {
		d.fault("$.model.name", "a model has a name")
	}
	if m.MaxOutputTokens < 0 {
		d.fault("$.model.max_output_tokens", "max_output_tokens is negative; leave it out for the default")
	}
	d.private("$.model.private", m.Private)
}
