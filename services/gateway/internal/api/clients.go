package api

import (
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
)

type clientList struct {
	Clients []clientRow `json:"clients"`
}

// clientRow is a client that is registered, or that a member let in by its metadata document.
type clientRow struct {
	client.Defined
	ClientID string `json:"client_id"`
}

func (a *API) clients(_ *http.Request, who auth.Identity, _ []byte) (clientList, error) {
	out := clientList{Clients: []clientRow{}}
	for _, c := range a.State.Clients(who.Tenant) {
		out.Clients = append(out.Clients, clientRow{c, oauth.ClientID(who.Tenant, c)})
	}
	return out, nil
}

type clientInput struct {
	Name      string   `json:"name,omitempty"` // default: that of the path
	Redirects []string `json:"redirects,omitempty"`
	Agent     string   `json:"agent,omitempty"`  // whose own client it is
	Secret    bool     `json:"secret,omitempty"` // it gets a new one; an agent's own always does
}

type clientMade struct {
	Client   id.Client `json:"client"`
	ClientID string    `json:"client_id"`
	Secret   string    `json:"secret,omitempty"` // this once
	Seq      uint64    `json:"seq"`
}

func (a *API) registerClient(r *http.Request, who auth.Identity, body []byte) (clientMade, error) {
	name, err := named[id.Client](r)
	if err != nil {
		return clientMade{}, err
	}
	in, err := read[clientInput](r, body)
	if err != nil {
		return clientMade{}, err
	}
	def := client.Defined{Client: name, Name: in.Name, Redirects: in.Redirects}
	if def.Name == "" {
		def.Name = id.Name(name)
	}
	if in.Agent != "" {
		if def.Agent, err = refer[id.Agent](in.Agent); err != nil {
			return clientMade{}, err
		}
	}
	made, err := a.OAuth.RegisterClient(r.Context(), who, def, in.Secret || in.Agent != "")
	if err != nil {
		return clientMade{}, err
	}
	return clientMade{made.Client, made.ClientID, made.Secret.Reveal(), made.Seq}, nil
}

// removeClient answers when no instance lets the client in, nor anything that it was given.
func (a *API) removeClient(r *http.Request, who auth.Identity, _ []byte) (ask.InForce, error) {
	name, err := named[id.Client](r)
	if err != nil {
		return ask.InForce{}, err
	}
	return a.OAuth.RemoveClient(r.Context(), who, name)
}
