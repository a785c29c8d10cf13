package auth

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
)

// Lives of what clients are given.
const (
	AccessLife = 15 * time.Minute    // of an access token
	loginIdle  = 30 * 24 * time.Hour // of a login that is not renewed
	loginLife  = 90 * 24 * time.Hour // of a login at most: then a member consents again
	codeValid  = time.Minute         // of an authorization code
	codeKept   = time.Hour           // of what is known of it, so that a second use is told from a guess
)

// What clients' secrets begin with.
const (
	codePrefix    = "ewg_"
	refreshPrefix = "ewr_"
	clientPrefix  = "ewc_"
)

// Consent is what a member let a client do, until it has fetched what it was let have.
type Consent struct {
	Tenant    id.Tenant `json:"tenant"`
	Member    id.Member `json:"member"`
	Agent     id.Agent  `json:"agent"`
	Client    id.Client `json:"client"`
	ClientID  string    `json:"client_id"` // as the client says it
	Resource  string    `json:"resource"`
	Redirect  string    `json:"redirect"`
	Challenge string    `json:"challenge"` // the SHA-256 of the verifier, in base64url (RFC 7636, section 4.2)
	Token     id.Token  `json:"token"`     // of the login that follows
	ExpiresAt time.Time `json:"expires_at"`
	Spent     bool      `json:"spent,omitempty"`
}

// Login is what a consent began: access tokens, one after another, for one agent, client and resource.
type Login struct {
	Tenant    id.Tenant `json:"tenant"`
	Member    id.Member `json:"member"` // who consented
	Agent     id.Agent  `json:"agent"`
	Client    id.Client `json:"client"`
	ClientID  string    `json:"client_id"`
	Resource  string    `json:"resource"`
	Token     id.Token  `json:"token"`
	Secret    string    `json:"secret"` // the hash of the half of the refresh token that changes
	ExpiresAt time.Time `json:"expires_at"`
}

// Fresh is what a client is given. Refresh is empty for a client that can ask again by its own secret.
type Fresh struct {
	Access, Refresh vault.Secret
	Expires         time.Duration // of the access token
	Seq             uint64        // of the control stream, that has to be heard for it to work; 0: it was heard
}

// ErrReused says that a code or a refresh token that was used up was sent again: somebody has a copy.
var ErrReused = problem.New(problem.Unauthenticated, "it was used before, so the login that it is of is over")

// ErrRace says that a refresh token was sent twice at the same moment, and the other one got its answer.
var ErrRace = problem.New(problem.Busy, "the same refresh token is being used elsewhere at this moment; this client has its answer there")

func invalidGrant(what string) error {
	return problem.New(problem.Unauthenticated, "the %s is not valid, or is not any more", what)
}

// NewCode makes the code for a consent.
func (p *People) NewCode(ctx context.Context, c Consent, now time.Time) (vault.Secret, error) {
	code := NewSecret(codePrefix)
	c.Token = id.Derive[id.Token](string(c.Tenant), HashOf(code).String())
	c.ExpiresAt = now.Add(codeValid).UTC()
	_, err := p.keep(ctx, "code."+HashOf(code).String(), c, codeKept, 0)
	return code, err
}

// Spend takes a code, once: whatever is wrong with the request that it came in, it is of no use after. Of a code that was
// spent before, ErrReused comes with the consent. Problems: unauthenticated, unavailable.
func (p *People) Spend(ctx context.Context, text string, now time.Time) (c Consent, err error) {
	code, err := parseSecret(codePrefix, text)
	if err != nil {
		return c, invalidGrant("code")
	}
	key := "code." + HashOf(code).String()
	revision, err := p.look(ctx, key, &c)
	if err != nil {
		return c, given(err, "code")
	}
	if c.Spent {
		return c, ErrReused
	}
	c.Spent = true
	// A crash after this leaves a code that is spent for nothing: the client asks its member again.
	switch _, err = p.keep(ctx, key, c, codeKept, revision); {
	case problem.CodeOf(err) == problem.Conflict:
		return c, ErrReused
	case err != nil:
		return c, err
	case !now.Before(c.ExpiresAt):
		return c, invalidGrant("code")
	}
	return c, nil
}

// Begin turns a consent into a login, with its first tokens. Saying it again adds nothing, but its code is spent by then.
func (p *People) Begin(ctx context.Context, c Consent, now time.Time) (Fresh, error) {
	l := Login{Tenant: c.Tenant, Member: c.Member, Agent: c.Agent, Client: c.Client, ClientID: c.ClientID, Resource: c.Resource, Token: c.Token,
		ExpiresAt: now.Add(loginLife).UTC()}
	constant, changing := random(), random()
	l.Secret = hashText(changing)
	refresh := vault.NewSecret(refreshPrefix + constant + changing)
	// As with every token, the record that it was issued comes first. A crash between the two leaves a login that nobody has.
	seq, err := p.once(ctx, eventlog.Draft{Tenant: l.Tenant, Key: string(l.Token), Actor: string(l.Member), Event: token.Issued{
		Token: l.Token, Member: l.Member, Agent: l.Agent, Client: l.Client, Resource: l.Resource, Fingerprint: vault.Fingerprint(vault.NewSecret(constant)), ExpiresAt: l.ExpiresAt}})
	if err == nil {
		_, err = p.keep(ctx, "login."+hashText(constant), l, loginIdle, 0)
	}
	if err != nil {
		return Fresh{}, err
	}
	return p.access(ctx, l, refresh, seq, now)
}

// Renew turns a refresh token into the next one and an access token. check is asked before anything changes. A refresh
// token is two secrets: one that stays names the login, one changes each time. Whoever has the first but an old second sends
// a token that was used before, and then ErrReused comes with the login. Problems: as check, unauthenticated, busy, unavailable.
func (p *People) Renew(ctx context.Context, text string, now time.Time, check func(Login) error) (Fresh, Login, error) {
	var l Login
	constant, changing, err := parseRefresh(text)
	if err != nil {
		return Fresh{}, l, err
	}
	key := "login." + hashText(constant)
	revision, err := p.look(ctx, key, &l)
	if err != nil {
		return Fresh{}, l, given(err, "refresh token")
	}
	if err := check(l); err != nil {
		return Fresh{}, l, err
	}
	if subtle.ConstantTimeCompare([]byte(l.Secret), []byte(hashText(changing))) != 1 {
		return Fresh{}, l, ErrReused
	}
	if !now.Before(l.ExpiresAt) {
		return Fresh{}, l, invalidGrant("refresh token")
	}
	next := random()
	l.Secret = hashText(next)
	switch _, err := p.keep(ctx, key, l, min(loginIdle, l.ExpiresAt.Sub(now)), revision); {
	case problem.CodeOf(err) == problem.Conflict:
		return Fresh{}, l, ErrRace
	case err != nil:
		return Fresh{}, l, err
	}
	// A crash here, or an answer that does not arrive, costs the login: the client knows the old token only, and using that
	// again looks like a thief's use.
	fresh, err := p.access(ctx, l, vault.NewSecret(refreshPrefix+constant+next), 0, now)
	return fresh, l, err
}

// LoginOf gives the login of a refresh token, used or not, without using it.
func (p *People) LoginOf(ctx context.Context, text string) (l Login, err error) {
	constant, _, err := parseRefresh(text)
	if err == nil {
		_, err = p.look(ctx, "login."+hashText(constant), &l)
	}
	return l, given(err, "refresh token")
}

// OwnToken is the token in the record that stands for what an agent's own client gets for a resource by a secret.
func OwnToken(l Login, secret vault.Secret) id.Token {
	return id.Derive[id.Token](string(l.Tenant), string(l.Client), l.Resource, HashOf(secret).String())
}

// Own gives an agent's own client an access token. Every one of the same secret and resource is of one token in the record.
func (p *People) Own(ctx context.Context, l Login, secret vault.Secret, now time.Time) (Fresh, error) {
	l.Token = OwnToken(l, secret)
	seq, err := p.once(ctx, eventlog.Draft{Tenant: l.Tenant, Key: string(l.Token), Actor: string(l.Agent), Event: token.Issued{
		Token: l.Token, Member: l.Member, Agent: l.Agent, Client: l.Client, Resource: l.Resource, Fingerprint: vault.Fingerprint(secret)}})
	if err != nil {
		return Fresh{}, err
	}
	return p.access(ctx, l, vault.Secret{}, seq, now)
}

func (p *People) access(ctx context.Context, l Login, refresh vault.Secret, seq uint64, now time.Time) (Fresh, error) {
	life := AccessLife
	if !l.ExpiresAt.IsZero() {
		life = min(life, l.ExpiresAt.Sub(now))
	}
	secret := NewSecret(agentPrefix)
	m := Membership{Tenant: l.Tenant, Member: l.Member, Agent: l.Agent, Token: l.Token, Client: l.Client, Resource: l.Resource, ExpiresAt: now.Add(life).UTC()}
	_, err := p.keep(ctx, key(HashOf(secret)), m, life, 0)
	return Fresh{Access: secret, Refresh: refresh, Expires: life, Seq: seq}, err
}

// AccessOf gives what an access token of a client stands for.
func (p *People) AccessOf(ctx context.Context, text string, now time.Time) (Membership, error) {
	secret, err := parseSecret(agentPrefix, text)
	if err != nil {
		return Membership{}, err
	}
	m, err := p.find(ctx, HashOf(secret), now)
	if err == nil && m.Client == "" {
		err = problem.New(problem.Unauthenticated, "the token is no client's")
	}
	return m, err
}

// ForgetAccess ends one access token.
func (p *People) ForgetAccess(ctx context.Context, text string) error {
	if err := p.kv.Delete(ctx, key(HashOf(vault.NewSecret(text)))); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the token could not be ended")
	}
	return nil
}

// ownSecret is the record of a client's secret.
type ownSecret struct {
	Hash   string    `json:"hash"`
	Member id.Member `json:"member"` // who registered it
}

func clientKey(tenant id.Tenant, c id.Client) string {
	return "client." + string(tenant) + "." + string(c)
}

// NewClientSecret gives a client a secret in place of the one it had, and gives it, this once.
func (p *People) NewClientSecret(ctx context.Context, tenant id.Tenant, c id.Client, by id.Member) (vault.Secret, error) {
	secret := NewSecret(clientPrefix)
	value, err := json.Marshal(ownSecret{HashOf(secret).String(), by})
	if err == nil {
		_, err = p.kv.Put(ctx, clientKey(tenant, c), value)
	}
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Unavailable, "the client's secret could not be kept")
	}
	return secret, nil
}

// ForgetClientSecret forgets the secret of a client.
func (p *People) ForgetClientSecret(ctx context.Context, tenant id.Tenant, c id.Client) error {
	if err := p.kv.Purge(ctx, clientKey(tenant, c)); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the client's secret could not be forgotten")
	}
	return nil
}

// CheckClientSecret says whether a secret is the client's, and who registered it. Problems: unauthenticated, unavailable.
func (p *People) CheckClientSecret(ctx context.Context, tenant id.Tenant, c id.Client, text string) (vault.Secret, id.Member, error) {
	wrong := problem.New(problem.Unauthenticated, "the client or its secret is not known")
	secret, err := parseSecret(clientPrefix, text)
	if err != nil {
		return vault.Secret{}, "", wrong
	}
	var own ownSecret
	switch _, err := p.look(ctx, clientKey(tenant, c), &own); {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return vault.Secret{}, "", wrong
	case err != nil:
		return vault.Secret{}, "", given(err, "secret")
	case subtle.ConstantTimeCompare([]byte(own.Hash), []byte(HashOf(secret).String())) != 1:
		return vault.Secret{}, "", wrong
	}
	return secret, own.Member, nil
}

// look reads a record.
func (p *People) look(ctx context.Context, key string, into any) (revision uint64, err error) {
	entry, err := p.kv.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(entry.Value(), into); err != nil {
		return 0, problem.New(problem.Internal, "the record of a login is damaged")
	}
	return entry.Revision(), nil
}

// given makes a problem of what reading a record went wrong with.
func given(err error, what string) error {
	switch {
	case err == nil || isProblem(err):
		return err
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return invalidGrant(what)
	}
	return problem.Wrap(err, problem.Unavailable, "logins cannot be read now")
}

func isProblem(err error) bool {
	var e *problem.Error
	return errors.As(err, &e)
}

// keep writes a record that ends by itself after life, if it still has the revision; 0: if there is none. Problems:
// conflict, unavailable.
func (p *People) keep(ctx context.Context, key string, v any, life time.Duration, revision uint64) (uint64, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return 0, problem.Wrap(err, problem.Internal, "a login cannot be written")
	}
	msg := &nats.Msg{Subject: "$KV." + bus.PeopleBucket + "." + key, Data: value, Header: nats.Header{}}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(max(life.Truncate(time.Second), time.Second)))
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == 10164):
		return 0, problem.Wrap(err, problem.Conflict, "somebody else was first")
	case err != nil:
		return 0, problem.Wrap(err, problem.Unavailable, "the login could not be kept")
	}
	return ack.Sequence, nil
}

func parseRefresh(text string) (constant, changing string, err error) {
	body, ok := strings.CutPrefix(text, refreshPrefix)
	half := base64.RawURLEncoding.EncodedLen(secretBytes)
	if !ok || len(body) != 2*half {
		return "", "", invalidGrant("refresh token")
	}
	return body[:half], body[half:], nil
}

func hashText(text string) string { return HashOf(vault.NewSecret(text)).String() }
