package auth

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Lives and bounds of codes and sessions.
const (
	codeLife      = 10 * time.Minute
	sessionLife   = 12 * time.Hour
	codesPerToken = 8
	seatsPerToken = 32
	maxCodes      = 1000
	maxSessions   = 10_000
)

// Members says which role a member has now, if they still are one and the token was not revoked. Problems:
// unauthenticated, unavailable (it is not certain to have heard of every removal and revocation).
type Members interface {
	Role(id.Tenant, id.Member, id.Token) (member.Role, error)
	// Agent says whether a token is one of an external agent now: the agent is there, and the token was not revoked.
	Agent(id.Tenant, id.Agent, id.Token) error
}

// Gate authenticates requests.
type Gate struct {
	Issued Issued // nil: only tokens of ours are taken

	people   *People
	members  Members
	secure   bool // cookies go over TLS only
	now      func() time.Time
	codes    *vouchers
	sessions *vouchers
	failures *failures
	known    acquaintances
}

// NewGate makes a gate. secure says that browsers reach it over TLS.
func NewGate(people *People, members Members, secure bool) *Gate {
	return &Gate{
		people: people, members: members, secure: secure, now: time.Now, failures: newFailures(),
		codes:    newVouchers(codeLife, codesPerToken, maxCodes),
		sessions: newVouchers(sessionLife, seatsPerToken, maxSessions),
	}
}

// Identify says who makes the request. Problems: unauthenticated, busy, unavailable. A token in the Authorization
// header counts before a cookie.
func (g *Gate) Identify(r *http.Request) (Identity, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		return g.byToken(r, header)
	}
	if cookie, err := r.Cookie(g.cookieName()); err == nil {
		h, ok := g.sessions.find(cookie.Value, g.now())
		if !ok {
			return Identity{}, problem.New(problem.Unauthenticated, "the session is over; log in again")
		}
		who, err := g.holder(r.Context(), h)
		who.session = true
		return who, err
	}
	return Identity{}, problem.New(problem.Unauthenticated, "log in, or send an access token: Authorization: Bearer %s...", tokenPrefix)
}

func (g *Gate) byToken(r *http.Request, header string) (who Identity, err error) {
	secret, err := bearer(header, tokenPrefix)
	if err == nil {
		secret, err = ParseToken(secret.Reveal())
	}
	if err != nil {
		return Identity{}, err // nothing was looked up, so it is not counted
	}
	err = g.counted(r, HashOf(secret), func(h Hash) error {
		who, err = g.holder(r.Context(), h)
		return err
	})
	return who, err
}

// bearer takes a token out of an Authorization header.
func bearer(header, prefix string) (vault.Secret, error) {
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return vault.Secret{}, problem.New(problem.Unauthenticated, "send an access token: Authorization: Bearer %s...", prefix)
	}
	return vault.NewSecret(strings.TrimSpace(text)), nil
}

// counted looks a token up, unless too many that are not valid came from the same address.
func (g *Gate) counted(r *http.Request, h Hash, look func(Hash) error) error {
	from := remote(r)
	if g.failures.exhausted(from, g.now()) && !g.known.has(h) {
		return problem.New(problem.Busy, "too many tokens that are not valid came from your address; try again in a minute")
	}
	err := look(h)
	switch problem.CodeOf(err) {
	case "":
		g.known.add(h)
	case problem.Unauthenticated:
		if !g.known.drop(h) { // one that was valid is no guess: access tokens end every quarter of an hour
			g.failures.note(from, g.now())
		}
	}
	return err
}

// Expect lets a token that was just made in, whoever else fails behind the same address.
func (g *Gate) Expect(secret vault.Secret) { g.known.add(HashOf(secret)) }

// Recheck says whether an identity still holds: for what lasts longer than a request should.
func (g *Gate) Recheck(ctx context.Context, who Identity) error {
	_, err := g.holder(ctx, who.hash)
	return err
}

// holder says who holds a token now. A session asks this at every request, so it ends when its token does.
func (g *Gate) holder(ctx context.Context, h Hash) (Identity, error) {
	m, err := g.people.find(ctx, h, g.now())
	if err != nil {
		return Identity{}, err
	}
	if m.Agent != "" {
		return Identity{}, problem.New(problem.Unauthenticated, "an agent's token opens the MCP endpoint only")
	}
	role, err := g.members.Role(m.Tenant, m.Member, m.Token)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Tenant: m.Tenant, Member: m.Member, Role: member.Narrower(m.Role, role), Token: m.Token, ExpiresAt: m.ExpiresAt, hash: h}, nil
}

// NewCode makes a code with which a browser can act for who, once.
func (g *Gate) NewCode(who Identity) (code string, expires time.Time, err error) {
	return g.codes.issue(who.hash, g.now())
}

// Login turns a code into a session's cookie.
func (g *Gate) Login(r *http.Request, code string) (*http.Cookie, error) {
	from := remote(r)
	if g.failures.exhausted(from, g.now()) {
		return nil, problem.New(problem.Busy, "too many failed attempts came from your address; try again in a minute")
	}
	h, ok := g.codes.take(code, g.now())
	if !ok {
		g.failures.note(from, g.now())
		return nil, problem.New(problem.Unauthenticated, "the login link was used already, or is older than %s; ask for a new one", codeLife)
	}
	if _, err := g.holder(r.Context(), h); err != nil {
		return nil, err
	}
	text, expires, err := g.sessions.issue(h, g.now())
	if err != nil {
		return nil, err
	}
	return g.cookie(text, expires), nil
}

// Logout ends the request's session and gives the cookie that removes it from the browser.
func (g *Gate) Logout(r *http.Request) *http.Cookie {
	if cookie, err := r.Cookie(g.cookieName()); err == nil {
		g.sessions.take(cookie.Value, g.now())
	}
	gone := g.cookie("", time.Unix(1, 0))
	gone.MaxAge = -1
	return gone
}

// cookieName has the prefix that keeps other hosts of the domain from setting it, where browsers allow that.
func (g *Gate) cookieName() string {
	if g.secure {
		return "__Host-ew_session"
	}
	return "ew_session"
}

func (g *Gate) cookie(value string, expires time.Time) *http.Cookie {
	return &http.Cookie{Name: g.cookieName(), Value: value, Path: "/", Expires: expires,
		HttpOnly: true, Secure: g.secure, SameSite: http.SameSiteStrictMode}
}
