package oauth

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Request is what a client asks a member for, checked.
type Request struct {
	Client    client.Defined
	ClientID  string
	Redirect  string
	State     string
	Challenge string
	Resource  string
}

// MaxQuery is the longest query of an authorization request, in bytes.
const MaxQuery = 8 << 10

// maxState is the longest state that is given back.
const maxState = 2048

var challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// Read reads an authorization request of a client to a member's tenant. Where it is wrong about the client or where to lead
// back to, nothing leads back. Anything else that is wrong comes with the address that tells the client so: a person follows
// it or not, since whoever made the link may have made the client too.
func (s *Server) Read(ctx context.Context, tenant id.Tenant, q url.Values) (r Request, back string, err error) {
	if err := single(q); err != nil {
		return r, "", err
	}
	if len(q.Encode()) > MaxQuery {
		return r, "", problem.New(problem.TooLarge, "the request is over %d bytes", MaxQuery)
	}
	r.ClientID, r.Redirect = q.Get("client_id"), q.Get("redirect_uri")
	if r.ClientID == "" {
		return r, "", problem.New(problem.Invalid, "the link is not whole: it names no client_id")
	}
	if r.Client, err = s.known(ctx, tenant, r.ClientID); err != nil {
		return r, "", err
	}
	if r.Redirect == "" || !matches(r.Client.Redirects, r.Redirect) {
		return r, "", problem.New(problem.Invalid, "the redirect_uri is none of the client's, so nothing leads back there")
	}
	if r.State = q.Get("state"); len(r.State) > maxState {
		return r, "", problem.New(problem.TooLarge, "the state is over %d bytes", maxState)
	}
	if err := s.readRest(&r, q); err != nil {
		var f *fault
		code := "server_error"
		if errors.As(err, &f) {
			code = f.code
		}
		return r, s.answer(r, url.Values{"error": {code}, "error_description": {problem.DetailOf(err).Message}}), err
	}
	return r, "", nil
}

func (s *Server) readRest(r *Request, q url.Values) (err error) {
	switch {
	case q.Get("response_type") != "code":
		return refuse(unsupportedAnswer, "response_type is code, and nothing else")
	case q.Has("request") || q.Has("request_uri"):
		return refuse(invalidRequest, "requests are not taken as tokens or by address")
	case q.Get("response_mode") != "" && q.Get("response_mode") != "query":
		return refuse(invalidRequest, "response_mode is query")
	case q.Get("code_challenge") == "":
		return refuse(invalidRequest, "PKCE is required: send code_challenge")
	case q.Get("code_challenge_method") != "S256":
		return refuse(invalidRequest, "code_challenge_method is S256; plain, which is also the default, protects nothing")
	case !challengeForm.MatchString(q.Get("code_challenge")):
		return refuse(invalidRequest, "the code_challenge is no SHA-256 in base64url")
	}
	r.Challenge = q.Get("code_challenge")
	if err := scopes(q.Get("scope")); err != nil {
		return err
	}
	r.Resource, err = s.target(q.Get("resource"))
	return err
}

// answer is where a client is told of an end. It always says whose answer it is (RFC 9207).
func (s *Server) answer(r Request, params url.Values) string {
	if r.State != "" {
		params.Set("state", r.State)
	}
	params.Set("iss", s.Issuer())
	return answerAt(r.Redirect, params)
}

// Refuse is where a client is told that the member said no.
func (s *Server) Refuse(r Request) string {
	return s.answer(r, url.Values{"error": {accessDenied}, "error_description": {"the member said no"}})
}

// Bounds of an agent's logins, as of its tokens.
const (
	maxLogins    = 100
	maxLoginsNew = 200
)

// Consent records that a member lets the client act for an agent, and gives the address, with a code, that tells it so.
func (s *Server) Consent(ctx context.Context, who auth.Identity, r Request, agent id.Agent) (string, error) {
	if !who.Role.MayConfigure() {
		return "", problem.New(problem.Denied, "a member with role %s lets no client act for an agent", who.Role)
	}
	if err := s.external(who.Tenant, agent); err != nil {
		return "", err
	}
	if name, ok := s.Connection(r.Resource); ok {
		if _, there := s.State.Connection(who.Tenant, name); !there {
			return "", problem.New(problem.NotFound, "there is no connection %s", id.Name(name))
		}
	}
	if err := s.room(who.Tenant, agent, now()); err != nil {
		return "", err
	}
	if err := s.admit(ctx, who, r.Client); err != nil {
		return "", err
	}
	code, err := s.People.NewCode(ctx, auth.Consent{Tenant: who.Tenant, Member: who.Member, Agent: agent, Client: r.Client.Client, ClientID: r.ClientID,
		Resource: r.Resource, Redirect: r.Redirect, Challenge: r.Challenge}, now())
	if err != nil {
		return "", err
	}
	return s.answer(r, url.Values{"code": {code.Reveal()}}), nil
}

// Connection is the connection that a resource is of, if it is of one alone.
func (s *Server) Connection(resource string) (id.Connection, bool) {
	prefix := s.resource("/mcp/c/")
	if len(resource) <= len(prefix) || resource[:len(prefix)] != prefix || connection.Method(resource[len(prefix):]) {
		return "", false
	}
	name, err := id.Named[id.Connection](resource[len(prefix):])
	return name, err == nil
}

func (s *Server) room(tenant id.Tenant, agent id.Agent, at time.Time) error {
	working, fresh := 0, 0
	for _, k := range s.State.Tokens(tenant) {
		if k.Agent != agent {
			continue
		}
		if !k.Revoked && (k.ExpiresAt.IsZero() || at.Before(k.ExpiresAt)) {
			working++
		}
		if at.Sub(k.IssuedAt) < 24*time.Hour {
			fresh++
		}
	}
	switch {
	case working >= maxLogins:
		return problem.New(problem.Conflict, "agent %s has %d tokens and logins that work, which is the most; revoke some", id.Name(agent), working)
	case fresh >= maxLoginsNew:
		return problem.New(problem.Busy, "agent %s got %d tokens and logins within a day, which is the most", id.Name(agent), fresh)
	}
	return nil
}
