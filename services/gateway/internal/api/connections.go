package api

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
)

type connectionList struct {
	Connections []connectionRow `json:"connections"`
}

// connectionRow is a connection with the tools that it was last seen to have.
type connectionRow struct {
	connection.Defined
	Tools []connection.Tool        `json:"tools"`
	Login *connection.LoginChanged `json:"login,omitempty"` // of one that has OAuth

	AgentLogins []connection.LoginChanged `json:"agent_logins,omitempty"` // of one with oauth.per_agent
}

func (a *API) connections(_ *http.Request, who auth.Identity, _ []byte) (connectionList, error) {
	out := connectionList{Connections: []connectionRow{}}
	for _, c := range a.State.Connections(who.Tenant) {
		row := connectionRow{Defined: c, Tools: a.State.Tools(who.Tenant, c.Connection)}
		if c.OAuth.Flow != "" {
			login := a.State.Login(who.Tenant, c)
			row.Login = &login
			if c.OAuth.PerAgent {
				row.AgentLogins = a.State.AgentLogins(who.Tenant, c)
			}
		}
		if row.Tools == nil {
			row.Tools = []connection.Tool{}
		}
		out.Connections = append(out.Connections, row)
	}
	return out, nil
}

// connectionInput is a connection; its credential is the real one, where the definition has only a fingerprint.
type connectionInput struct {
	connection.Defined
	Credential string `json:"credential,omitempty"`
}

func (a *API) defineConnection(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Connection](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[connectionInput](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	if in.Connection, err = same(name, in.Connection); err != nil {
		return ask.Sequence{}, err
	}
	if in.Removed {
		return ask.Sequence{}, problem.New(problem.Invalid, "removed is not for definitions; delete the connection instead")
	}
	return a.Peers.DefineConnection(r.Context(), who, ask.DefineConnection{Connection: in.Defined, Credential: in.Credential})
}

// removeConnection answers when nothing reaches the provider over the connection any more.
func (a *API) removeConnection(r *http.Request, who auth.Identity, _ []byte) (ask.InForce, error) {
	def, err := a.connection(r, who)
	if err != nil {
		return ask.InForce{}, err
	}
	def.Removed = true
	said, err := a.Peers.DefineConnection(r.Context(), who, ask.DefineConnection{Connection: def})
	if err != nil {
		return ask.InForce{}, err
	}
	return a.Peers.InForce(r.Context(), who, said.Seq)
}

// loginInput says whose login it is to be.
type loginInput struct {
	Agent id.Agent `json:"agent,omitempty"` // of a connection with oauth.per_agent; empty: the connection's own
}

// beginLogin gives the URL at which a member logs in to a connection's provider. The browser comes back to this site.
func (a *API) beginLogin(r *http.Request, who auth.Identity, body []byte) (ask.LoginBegun, error) {
	def, err := a.connection(r, who)
	if err != nil {
		return ask.LoginBegun{}, err
	}
	in, err := readOptional[loginInput](r, body)
	if err == nil && in.Agent != "" {
		_, err = parsed[id.Agent](string(in.Agent))
	}
	if err != nil {
		return ask.LoginBegun{}, err
	}
	return a.Peers.BeginLogin(r.Context(), who, ask.BeginLogin{Connection: def.Connection, Agent: in.Agent, Redirect: a.Site.URL(oauth.CallbackPath, nil), Document: a.OAuth.Document()})
}

// diffConnection shows what changed under grants.
func (a *API) diffConnection(r *http.Request, who auth.Identity, _ []byte) (ask.ConnectionDiff, error) {
	def, err := a.connection(r, who)
	if err != nil {
		return ask.ConnectionDiff{}, err
	}
	return a.Peers.DiffConnection(r.Context(), who, ask.DiffConnection{Connection: def.Connection})
}

// connection is the one that a request's path names.
func (a *API) connection(r *http.Request, who auth.Identity) (connection.Defined, error) {
	name, err := named[id.Connection](r)
	if err != nil {
		return connection.Defined{}, err
	}
	def, ok := a.State.Connection(who.Tenant, name)
	if !ok {
		return def, problem.New(problem.NotFound, "there is no connection %s", id.Name(name))
	}
	return def, nil
}

// importPackage takes an archive with an API's description. The name of the document in it is in the query.
func (a *API) importPackage(r *http.Request, who auth.Identity, body []byte) (ask.Imported, error) {
	name, err := named[id.Connection](r)
	if err != nil {
		return ask.Imported{}, err
	}
	if r.Header.Get("Content-Type") != "application/zip" {
		return ask.Imported{}, problem.New(problem.Invalid, "send a zip archive, with Content-Type: application/zip")
	}
	document := r.URL.Query().Get("document")
	if document == "" || len(document) > 500 {
		return ask.Imported{}, problem.New(problem.Invalid, "document names the API's description in the archive")
	}
	return a.Peers.ImportPackage(r.Context(), who, name, document, body)
}
