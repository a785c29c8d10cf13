package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// tokens is the answer to a token request (RFC 6749, section 5.1). It is written to its client and nowhere else.
type tokens struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int    `json:"expires_in"` // seconds
	Refresh string `json:"refresh_token,omitempty"`
	Scope   string `json:"scope"`
}

// asking is a client that asks for tokens. secret is set when it has proved who it is.
type asking struct {
	clientID string
	tenant   id.Tenant // of one that is registered
	def      client.Defined
	secret   vault.Secret
	by       id.Member // who registered its secret
}

func (s *Server) token(r *http.Request, q url.Values) (any, error) {
	who, err := s.authenticate(r, q)
	if err != nil {
		return nil, err
	}
	var fresh auth.Fresh
	switch q.Get("grant_type") {
	case "authorization_code":
		fresh, err = s.byCode(r.Context(), who, q)
	case "refresh_token":
		fresh, err = s.byRefresh(r.Context(), who, q)
	case "client_credentials":
		fresh, err = s.byOwn(r.Context(), who, q)
	default:
		err = refuse(unsupportedGrant, "grant_type is authorization_code, refresh_token or client_credentials")
	}
	if err != nil {
		return nil, err
	}
	if fresh.Seq > 0 { // a client may be quicker with its token than another instance with the event
		_, _ = s.Peers.InForceAmong(r.Context(), auth.Identity{Tenant: who.tenant, Member: id.Member(actor)}, fresh.Seq, schemas.Gateway) // who has not heard it is fenced
		s.Peers.Seen(r.Context(), fresh.Seq)
	}
	s.Expect(fresh.Access)
	return tokens{Access: fresh.Access.Reveal(), Type: "Bearer", Expires: int(fresh.Expires.Seconds()), Refresh: fresh.Refresh.Reveal(), Scope: Scope}, nil
}

// authenticate reads which client asks. One that has a secret has to send it; one with a document has none, and what it sends is
// bound to it otherwise: by PKCE, and by its refresh token.
func (s *Server) authenticate(r *http.Request, q url.Values) (asking, error) {
	who := asking{clientID: q.Get("client_id")}
	secret := q.Get("client_secret")
	if user, pass, ok := r.BasicAuth(); ok {
		id, err1 := url.QueryUnescape(user) // RFC 6749, section 2.3.1
		pass, err2 := url.QueryUnescape(pass)
		if err1 != nil || err2 != nil || secret != "" || who.clientID != "" && who.clientID != id {
			return who, refuse(invalidRequest, "the client names itself once, in the header or in the body")
		}
		who.clientID, secret = id, pass
	} else if r.Header.Get("Authorization") != "" {
		return who, refuse(invalidClient, "a client's secret comes by Basic, or in the body")
	}
	unknown := refuse(invalidClient, "the client is not known, or not what it has to be")
	of, c, registered := registeredID(who.clientID)
	if !registered {
		if err := checkClientURL(who.clientID); err != nil || secret != "" {
			return who, unknown
		}
		who.def = client.Defined{Client: documented(who.clientID), URL: who.clientID}
		return who, nil
	}
	def, ok := s.State.Client(of, c)
	if !ok || def.URL != "" || (def.Fingerprint == "") != (secret == "") {
		return who, unknown
	}
	who.tenant, who.def = of, def
	if secret != "" {
		var err error
		if who.secret, who.by, err = s.People.CheckClientSecret(r.Context(), of, c, secret); problem.CodeOf(err) == problem.Unauthenticated {
			return who, unknown
		} else if err != nil {
			return who, err
		}
	}
	return who, nil
}

var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

func (s *Server) byCode(ctx context.Context, who asking, q url.Values) (auth.Fresh, error) {
	c, err := s.People.Spend(ctx, q.Get("code"), now())
	if errors.Is(err, auth.ErrReused) {
		// RFC 6749, section 4.1.2: what the code gave is revoked with it, whoever sends it the second time.
		if err := s.end(ctx, c.Tenant, actor, token.Revoked{Token: c.Token, Member: c.Member, Agent: c.Agent, Reason: "its code was used twice"}); err != nil {
			return auth.Fresh{}, err
		}
		return auth.Fresh{}, refuse(invalidGrant, "the code was used before; what it gave is revoked")
	}
	if err != nil {
		return auth.Fresh{}, err
	}
	verifier := q.Get("code_verifier")
	sum := sha256.Sum256([]byte(verifier))
	resource := q.Get("resource")
	if resource == s.Issuer()+"/" {
		resource = s.Issuer()
	}
	switch {
	case c.ClientID != who.clientID:
		return auth.Fresh{}, refuse(invalidGrant, "the code is another client's")
	case q.Get("redirect_uri") != c.Redirect:
		return auth.Fresh{}, refuse(invalidGrant, "the redirect_uri is not the one that the code was sent to")
	case !verifierForm.MatchString(verifier),
		subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(c.Challenge)) != 1:
		return auth.Fresh{}, refuse(invalidGrant, "the code_verifier is not that of the code_challenge")
	case resource != c.Resource:
		return auth.Fresh{}, refuse(invalidTarget, "the resource is not the one that was consented to; send resource=%s", c.Resource)
	}
	if err := s.there(c.Tenant, c.Agent, c.Client); err != nil {
		return auth.Fresh{}, err
	}
	return s.People.Begin(ctx, c, now())
}

// there says whether an agent and a client still are.
func (s *Server) there(tenant id.Tenant, agent id.Agent, c id.Client) error {
	if err := s.external(tenant, agent); err != nil {
		return refuse(invalidGrant, "the agent is not there any more")
	}
	if _, ok := s.State.Client(tenant, c); !ok {
		return refuse(invalidGrant, "the client was removed")
	}
	return nil
}

func (s *Server) byRefresh(ctx context.Context, who asking, q url.Values) (auth.Fresh, error) {
	if err := scopes(q.Get("scope")); err != nil {
		return auth.Fresh{}, err
	}
	fresh, l, err := s.People.Renew(ctx, q.Get("refresh_token"), now(), func(l auth.Login) error {
		if l.ClientID != who.clientID {
			return refuse(invalidGrant, "the refresh token is another client's")
		}
		// RFC 8707 has it in each request; who leaves it out means what it logged in to.
		if r := q.Get("resource"); r != "" && r != l.Resource && r != l.Resource+"/" {
			return refuse(invalidTarget, "the login is for another resource")
		}
		return s.Members.Agent(l.Tenant, l.Agent, l.Token)
	})
	if errors.Is(err, auth.ErrReused) {
		// One of the two who have it is not the client, and nobody can tell which (RFC 9700, section 4.14.2).
		if err := s.end(ctx, l.Tenant, actor, token.Revoked{Token: l.Token, Member: l.Member, Agent: l.Agent, Reason: "a refresh token was used twice"}); err != nil {
			return auth.Fresh{}, err
		}
		return auth.Fresh{}, refuse(invalidGrant, "the refresh token was used before; the login is revoked")
	}
	return fresh, err
}

// byOwn gives an agent's own client a token, without a person.
func (s *Server) byOwn(ctx context.Context, who asking, q url.Values) (auth.Fresh, error) {
	if who.secret.Empty() || who.def.Agent == "" {
		return auth.Fresh{}, refuse(unauthorizedClient, "the client is no agent's own")
	}
	if err := scopes(q.Get("scope")); err != nil {
		return auth.Fresh{}, err
	}
	resource, err := s.target(q.Get("resource"))
	if err != nil {
		return auth.Fresh{}, err
	}
	if err := s.external(who.tenant, who.def.Agent); err != nil {
		return auth.Fresh{}, refuse(unauthorizedClient, "the client's agent is not there any more")
	}
	l := auth.Login{Tenant: who.tenant, Member: who.by, Agent: who.def.Agent, Client: who.def.Client, ClientID: who.clientID, Resource: resource}
	own := auth.OwnToken(l, who.secret)
	if k, known := s.State.Token(l.Tenant, own); known && k.Revoked {
		return auth.Fresh{}, refuse(unauthorizedClient, "the client's token for this resource was revoked; register the client again for a new secret")
	}
	return s.People.Own(ctx, l, who.secret, now())
}
