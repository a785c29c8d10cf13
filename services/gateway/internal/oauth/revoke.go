package oauth

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
)

// revoke ends a token at its client's wish (RFC 7009): with either token of a login the whole login, with an access token of an
// agent's own client that one. What is not known is answered like what ended.
func (s *Server) revoke(r *http.Request, q url.Values) (any, error) {
	who, err := s.authenticate(r, q)
	if err != nil {
		return nil, err
	}
	text, ctx := q.Get("token"), r.Context()
	if text == "" {
		return nil, refuse(invalidRequest, "say which token")
	}
	nothing := struct{}{}
	gone := func(err error) (any, error) {
		if problem.CodeOf(err) == problem.Unauthenticated {
			return nothing, nil
		}
		return nil, err
	}
	var tenant id.Tenant
	var login token.Revoked
	if strings.HasPrefix(text, "ewr_") {
		l, err := s.People.LoginOf(ctx, text)
		if err != nil {
			return gone(err)
		}
		if l.ClientID != who.clientID {
			return nil, refuse(invalidGrant, "the token is another client's")
		}
		tenant, login = l.Tenant, token.Revoked{Token: l.Token, Member: l.Member, Agent: l.Agent}
	} else {
		m, err := s.People.AccessOf(ctx, text, now())
		if err != nil {
			return gone(err)
		}
		if m.Client != who.def.Client || who.tenant != "" && m.Tenant != who.tenant {
			return nil, refuse(invalidGrant, "the token is another client's")
		}
		if who.def.Agent != "" {
			return nothing, s.People.ForgetAccess(ctx, text)
		}
		tenant, login = m.Tenant, token.Revoked{Token: m.Token, Member: m.Member, Agent: m.Agent}
	}
	login.Reason = "its client logged out"
	return nothing, s.end(ctx, tenant, string(login.Agent), login)
}
