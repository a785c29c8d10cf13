package toolbroker

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/control"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/oauth"
	"github.com/execwarden/execwarden/services/toolbroker/internal/stdio"
)

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(append(s.vault.Methods(s.keepsOf, s.secretsOf),
		rpc.On("connection_define", s.defineConnection),
		rpc.On("connection_diff", s.diffConnection),
		rpc.On("login_begin", s.beginLogin),
		rpc.On("login_look", s.lookLogin),
		rpc.On("login_finish", s.finishLogin),
		rpc.On("tools_visible", s.visibleTools),
		rpc.On("package_import", s.importPackage),
		rpc.On("tools_search", s.searchTools),
		rpc.On("client_list", s.listForClient),
		rpc.On("resource_watch", s.watchResource),
		rpc.On("tool_describe", s.describeTool),
		rpc.On("types_show", s.showTypes),
		rpc.On("access_show", s.showAccess),
		rpc.On("grant_simulate", s.simulateGrant),
		rpc.On("visit_admit", s.admitVisit),
		barrier.Answer(s.view),
		rpc.On("edit_check", s.checkEdit),
	)...)
}

func (s *Service) defineConnection(ctx context.Context, who rpc.Caller, q ask.DefineConnection) (ask.Sequence, error) {
	def := q.Connection
	name := id.Name(def.Connection)
	if !member.Role(who.Role).MayConfigure() {
		return ask.Sequence{}, problem.New(problem.Denied, "a %s may not change connections", who.Role)
	}
	if _, err := id.Parse[id.Connection](string(def.Connection)); err != nil {
		return ask.Sequence{}, problem.Wrap(err, problem.Invalid, "connection: %v", err)
	}
	if slices.Contains(control.Reserved(), name) {
		return ask.Sequence{}, problem.New(problem.Invalid, "%s is the name of built-in tools; choose another", name)
	}
	if def.Type != connection.GitHub && def.Type != connection.MCP && def.Type != connection.API {
		return ask.Sequence{}, problem.New(problem.Invalid, "connection type %.40q is not github, mcp or api", def.Type)
	}
	if err := s.checkURL(who.Tenant, def); err != nil {
		return ask.Sequence{}, err
	}
	for _, p := range def.Private {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return ask.Sequence{}, problem.New(problem.Invalid, "private %.80q is not an address:port", p)
		}
	}
	if err := checkOAuth(def); err != nil {
		return ask.Sequence{}, err
	}
	if _, err := filesOf(def); err != nil {
		return ask.Sequence{}, problem.Wrap(err, problem.Invalid, "hosts: %s", problem.DetailOf(err).Message)
	}
	var err error
	old, ok := s.state.Connection(who.Tenant, name)
	if def.Credential = ""; ok { // the credential of one that was removed is deleted
		def.Credential = old.Credential
	}
	if def.Credential != "" && q.Credential == "" && !def.Removed && (!sameOrigin(old.URL, def.URL) || !sameOrigin(old.GitURL, def.GitURL)) {
		// Who may change a connection may not read its credential, nor have it sent elsewhere.
		return ask.Sequence{}, problem.New(problem.Invalid, "the credential of connection %s is for %s; give the one for the new address with it", name, old.URL)
	}
	if def.OAuth.Flow == connection.ClientCredentials && def.Credential == "" && q.Credential == "" && !def.Removed {
		return ask.Sequence{}, problem.New(problem.Invalid, "oauth.flow %s needs a credential: the client's secret", def.OAuth.Flow)
	}
	if q.Credential != "" {
		if def.Credential, err = s.vault.Put(ctx, who.Tenant, string(def.Connection), vault.NewSecret(q.Credential)); err != nil {
			return ask.Sequence{}, err
		}
		// A crash here leaves the new credential under the old definition, which does not use it; see credential.
	}
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: def, Tenant: who.Tenant, Key: string(def.Connection), Actor: who.Actor})
	return ask.Sequence{Seq: seq}, err
}

// keepsOf lists the tenants that there may be secrets of.
func (s *Service) keepsOf() ([]id.Tenant, error) {
	return append(s.state.Tenants(), deployment), s.view.Current()
}

// secretsOf names a tenant's secrets: the credential and the logins of each connection, also of one that was removed.
func (s *Service) secretsOf(of id.Tenant) []string {
	if of == deployment {
		return []string{permitKeyName}
	}
	var names []string
	for _, c := range s.state.Credentials(of) {
		names = append(append(names, string(c)), oauth.Sealed(c, s.state.Agents(of))...)
	}
	return names
}

// checkURL refuses a URL that leads nowhere. A program is one that the operator listed: no more of it is the tenant's choice.
func (s *Service) checkURL(tenant id.Tenant, def connection.Defined) error {
	if strings.HasPrefix(def.URL, stdio.Scheme) {
		switch {
		case def.Removed:
			return nil
		case def.Type != connection.MCP || def.OAuth.Flow != "" || len(def.Private)+len(def.Hosts) > 0:
			return problem.New(problem.Invalid, "a program is a connection of type mcp, without private, hosts and oauth")
		}
		_, err := s.providers.programs.Find(tenant, def.URL)
		return err
	}
	if def.GitURL != "" {
		if def.Type != connection.GitHub {
			return problem.New(problem.Invalid, "git_url is for connections of type github")
		}
		if _, err := github.GitURL(def.URL, def.GitURL); err != nil {
			return err
		}
	}
	u, err := url.Parse(def.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return problem.New(problem.Invalid, "connection URL %.200q is not an http(s) URL", def.URL)
	}
	return nil
}
