package oauth

import (
	"context"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// ClientID is how a client names itself: by its document's URL, or by the tenant and the name that it was registered with.
func ClientID(tenant id.Tenant, c client.Defined) string {
	if c.URL != "" {
		return c.URL
	}
	return string(tenant) + "." + string(c.Client)
}

// registeredID reads the id of a client that a member registered.
func registeredID(text string) (id.Tenant, id.Client, bool) {
	left, right, _ := strings.Cut(text, ".")
	tenant, err1 := id.Parse[id.Tenant](left)
	c, err2 := id.Parse[id.Client](right)
	return tenant, c, err1 == nil && err2 == nil
}

// documented is the id, in every tenant, of the client whose document is at a URL.
func documented(url string) id.Client { return id.Derive[id.Client](url) }

// known gives the client that a request names, for a tenant. A document is fetched, and what it says is not yet on record.
func (s *Server) known(ctx context.Context, tenant id.Tenant, clientID string) (client.Defined, error) {
	if strings.HasPrefix(clientID, "https:") {
		doc, err := s.Documents.get(ctx, clientID)
		if err != nil {
			return client.Defined{}, err
		}
		return client.Defined{Client: documented(clientID), Name: doc.Name, URL: clientID, Redirects: doc.Redirects}, nil
	}
	of, c, ok := registeredID(clientID)
	def, there := s.State.Client(of, c)
	if !ok || of != tenant || !there || def.URL != "" {
		return client.Defined{}, problem.New(problem.NotFound, "no client of this id is registered here; a member registers one with execwarden clients register, or it has a metadata document at an https URL, which is its id")
	}
	return def, nil
}

// Registered is what a member gets of a client that they registered. Secret is shown this once.
type Registered struct {
	Client   id.Client
	ClientID string
	Secret   vault.Secret
	Seq      uint64
}

// RegisterClient defines a client. One that is to have a secret gets a new one. Problems: invalid, not_found, unavailable.
func (s *Server) RegisterClient(ctx context.Context, who auth.Identity, def client.Defined, secret bool) (Registered, error) {
	out := Registered{Client: def.Client, ClientID: ClientID(who.Tenant, def)}
	def.Fingerprint = ""
	switch {
	case def.Removed || def.URL != "":
		return out, problem.New(problem.Invalid, "a client is registered with a name and redirect URIs; one with a metadata document needs no registration")
	case checkName(def.Name) != nil:
		return out, checkName(def.Name)
	case def.Agent == "" && len(def.Redirects) == 0:
		return out, problem.New(problem.Invalid, "a client has redirect URIs, where members' logins lead back to, or an agent, whose own it is")
	case def.Agent != "" && len(def.Redirects) > 0:
		return out, problem.New(problem.Invalid, "a client is an agent's own, or members log in with it: register two")
	case def.Agent != "" && !secret:
		return out, problem.New(problem.Invalid, "an agent's own client has a secret")
	}
	if len(def.Redirects) > 0 {
		if err := checkRedirects(def.Redirects, true); err != nil {
			return out, err
		}
	}
	if def.Agent != "" {
		if err := s.external(who.Tenant, def.Agent); err != nil {
			return out, err
		}
	}
	if err := s.endLogins(ctx, who, def.Client, "its client was removed"); err != nil {
		return out, err
	}
	var err error
	if secret {
		// A crash after this leaves a secret that nobody was told, in place of one that worked: it is registered again.
		if out.Secret, err = s.People.NewClientSecret(ctx, who.Tenant, def.Client, who.Member); err != nil {
			return out, err
		}
		def.Fingerprint = vault.Fingerprint(out.Secret)
	}
	out.Seq, err = s.define(ctx, who, def)
	return out, err
}

func (s *Server) external(tenant id.Tenant, a id.Agent) error {
	switch def, ok := s.State.Agent(tenant, a); {
	case !ok:
		return problem.New(problem.NotFound, "there is no agent %.60s", id.Name(a))
	case def.Hosting != agent.External:
		return problem.New(problem.Invalid, "agent %s is hosted; clients act for external ones", id.Name(a))
	}
	return nil
}

func (s *Server) define(ctx context.Context, who auth.Identity, def client.Defined) (uint64, error) {
	seq, err := s.Log.Append(ctx, eventlog.Draft{Tenant: who.Tenant, Key: string(def.Client), Actor: string(who.Member), Event: def})
	if err == nil {
		s.Peers.Seen(ctx, seq)
	}
	return seq, err
}

// RemoveClient removes a client and ends what it was given. It returns when no instance lets it in.
func (s *Server) RemoveClient(ctx context.Context, who auth.Identity, c id.Client) (ask.InForce, error) {
	def, ok := s.State.Client(who.Tenant, c)
	if !ok {
		return ask.InForce{}, problem.New(problem.NotFound, "there is no client %s", c)
	}
	def.Removed = true
	seq, err := s.define(ctx, who, def)
	if err != nil {
		return ask.InForce{}, err
	}
	// From here on nothing of it works. Its logins are ended one by one too, so that none works again if it comes back. A
	// crash meanwhile leaves some, which end before it does.
	done, err := s.Peers.InForceAmong(ctx, who, seq, schemas.Gateway)
	if err == nil {
		err = s.endLogins(ctx, who, c, "its client was removed")
	}
	if err == nil && def.Fingerprint != "" {
		err = s.People.ForgetClientSecret(ctx, who.Tenant, c)
	}
	return done, err
}

// endLogins ends the logins of a client that was removed.
func (s *Server) endLogins(ctx context.Context, who auth.Identity, c id.Client, reason string) error {
	if def, _ := s.State.Client(who.Tenant, c); !def.Removed {
		return nil
	}
	var last uint64
	for _, k := range s.State.Tokens(who.Tenant) {
		if k.Client != c || k.Revoked {
			continue
		}
		seq, err := s.Log.Append(ctx, eventlog.Draft{Tenant: who.Tenant, Key: string(k.Issued.Token), Actor: string(who.Member),
			Event: token.Revoked{Token: k.Issued.Token, Member: k.Member, Agent: k.Agent, Reason: reason}})
		if err != nil {
			return err
		}
		last = seq
	}
	if last == 0 {
		return nil
	}
	_, err := s.Peers.InForceAmong(ctx, who, last, schemas.Gateway)
	return err
}

// admit puts a client that a member consented to on record, as its document is now, unless it is there like that.
func (s *Server) admit(ctx context.Context, who auth.Identity, def client.Defined) error {
	have, ok := s.State.Client(who.Tenant, def.Client)
	if ok && have.Name == def.Name && slices.Equal(have.Redirects, def.Redirects) || def.URL == "" {
		return nil
	}
	if err := s.endLogins(ctx, who, def.Client, "its client was removed"); err != nil {
		return err
	}
	_, err := s.define(ctx, who, def)
	return err
}
