package oauth

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// offline is the scope by which some servers are asked for a refresh token (OpenID Connect Core, section 11).
const offline = "offline_access"

// maxWants bounds what a provider can have noted that it wants, in scopes.
const maxWants = 20

// scopesOf are the scopes that a login asks for: those that the connection lists, and no other; else those that the provider asks
// for. Where that refused a request for want of scopes, what the login before had comes to them: one for less would take it away.
// A refresh token is asked for where there is a scope for it.
func scopesOf(conn Connection, before entry, s server) []string {
	if conn.OAuth.Scopes != nil {
		return conn.OAuth.Scopes
	}
	scopes := slices.Clone(s.Scopes)
	if before.of(conn) && len(before.Wants) > 0 {
		scopes = union(scopes, before.Asked, before.Scopes, before.Wants)
	}
	if s.Offline && len(scopes) > 0 { // alone it would be in the place of what a server gives to who asks for nothing
		scopes = union(scopes, []string{offline})
	}
	return scopes
}

func union(scopes []string, more ...[]string) []string {
	for _, list := range more {
		for _, one := range list {
			if !slices.Contains(scopes, one) {
				scopes = append(scopes, one)
			}
		}
	}
	return scopes
}

// lacking reads a refusal for want of scopes (RFC 6750, section 3.1).
func lacking(h http.Header) (wants []string, ok bool) {
	challenges, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
	if err != nil {
		return nil, false
	}
	for _, ch := range challenges {
		if ch.Scheme != "bearer" || ch.Params["error"] != "insufficient_scope" {
			continue
		}
		for _, one := range strings.Fields(ch.Params["scope"]) {
			if len(wants) < maxWants && IsScope(one) {
				wants = append(wants, one)
			}
		}
		return wants, true
	}
	return nil, false
}

// IsScope says whether text is a scope (RFC 6749, section 3.3), and of a size that is kept.
func IsScope(text string) bool {
	return text != "" && len(text) <= 200 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// lack notes which scopes the provider wants for what a token was refused. Problems: unauthenticated, where a login gets them;
// denied, where somebody has to give them first; unavailable.
func (c *Client) lack(ctx context.Context, conn Connection, token string, wants []string) error {
	if len(wants) == 0 {
		return problem.New(problem.Denied, "the MCP server of connection %s refuses for want of scopes, and does not say of which", conn.name())
	}
	if conn.OAuth.Scopes != nil || conn.OAuth.Flow != connection.AuthorizationCode {
		return problem.New(problem.Denied, "the MCP server of connection %s wants the scopes %q; an admin lists them in oauth.scopes, if the connection is to have them", conn.name(), scope(wants))
	}
	for {
		e, revision, err := c.read(ctx, conn)
		if err != nil {
			return err
		}
		if !e.of(conn) || e.Access != token {
			return problem.New(problem.Unavailable, "connection %s has another login by now; try again", conn.name())
		}
		if all := union(slices.Clone(e.Wants), wants); len(all) > len(e.Wants) && len(all) <= maxWants {
			e.Wants = all
			_, err := c.write(ctx, conn, e, revision)
			if problem.CodeOf(err) == problem.Conflict {
				continue
			}
			if err != nil {
				return err
			}
			// A crash here: whoever is refused next tells it.
		}
		c.tell(ctx, conn, e)
		if e.asked() {
			return problem.New(problem.Denied, "connection %s may not do that: %s", conn.name(), e.lacking())
		}
		return needs(conn, e.lacking())
	}
}

// asked says whether the login asked for all that the provider wants.
func (e *entry) asked() bool {
	return !slices.ContainsFunc(e.Wants, func(one string) bool { return !slices.Contains(e.Asked, one) })
}

// lacking says what the provider wants.
func (e *entry) lacking() string {
	if e.asked() {
		return "its MCP server wants the scopes " + scope(e.Wants) + ", which the login asked for in vain"
	}
	return "its MCP server wants the scopes " + scope(e.Wants) + " besides, which a new login asks for"
}
