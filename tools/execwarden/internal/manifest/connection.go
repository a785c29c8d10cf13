package manifest

import (
	"context"
	"strings"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

type connectionFields struct {
	Header     `yaml:",inline"`
	Type       connection.Type `yaml:"type"`
	URL        string          `yaml:"url"`
	GitURL     string          `yaml:"git_url"`
	Private    []string        `yaml:"private"`
	Hosts      []string        `yaml:"hosts"`
	Trusted    bool            `yaml:"trusted"`
	OAuth      *oauthFields    `yaml:"oauth"`
	Credential *secretRef      `yaml:"credential"`
}

type oauthFields struct {
	Flow     connection.Flow `yaml:"flow"`
	ClientID string          `yaml:"client_id"`
	Scopes   []string        `yaml:"scopes"`
	PerAgent bool            `yaml:"per_agent"`
}

func buildConnection(d *document) (r Resource) {
	f, ok := fields[connectionFields](d)
	if !ok {
		return r
	}
	def := connection.Defined{Connection: named[id.Connection](d), Type: f.Type, URL: f.URL, GitURL: f.GitURL, Private: f.Private, Hosts: f.Hosts, Trusted: f.Trusted}
	if f.Type != connection.GitHub && f.Type != connection.MCP && f.Type != connection.API {
		d.fault("$.type", "type %.40q is not github, mcp or api", f.Type)
	}
	if o := f.OAuth; o != nil {
		def.OAuth = connection.OAuth{Flow: o.Flow, ClientID: o.ClientID, Scopes: o.Scopes, PerAgent: o.PerAgent}
		switch {
		case f.Type != connection.MCP:
			d.fault("$.oauth", "oauth is for connections of type mcp")
		case o.Flow != connection.AuthorizationCode && o.Flow != connection.ClientCredentials:
			d.fault("$.oauth.flow", "flow %.40q is not %s or %s", o.Flow, connection.AuthorizationCode, connection.ClientCredentials)
		case o.Flow == connection.ClientCredentials && o.ClientID == "":
			d.fault("$.oauth.client_id", "flow %s needs a client_id", o.Flow)
		case o.PerAgent && o.Flow != connection.AuthorizationCode:
			d.fault("$.oauth.per_agent", "per_agent is for flow %s, in which somebody logs in", connection.AuthorizationCode)
		}
	}
	if f.Type != connection.MCP || !strings.HasPrefix(f.URL, "stdio:") { // a program that the broker's operator lists
		d.httpURL("$.url", f.URL)
	}
	if f.GitURL != "" {
		d.httpURL("$.git_url", f.GitURL)
		if f.Type != connection.GitHub {
			d.fault("$.git_url", "git_url is for connections of type github")
		}
	}
	d.private("$.private", f.Private)
	r.Secret = d.secret("$.credential", f.Credential)
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, credential string) error {
		return api.PutConnection(ctx, def, credential)
	}
	return r
}
