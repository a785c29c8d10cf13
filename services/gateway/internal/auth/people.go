package auth

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/token"
)

const actor = "service:" + string(schemas.Gateway)

// Membership is what a token stands for.
type Membership struct {
	Tenant    id.Tenant   `json:"tenant"`
	Member    id.Member   `json:"member"`
	Role      member.Role `json:"role"`
	Agent     id.Agent    `json:"agent,omitempty"` // when set, the token is this agent's, and Member who made it
	Token     id.Token    `json:"token"`
	Client    id.Client   `json:"client,omitempty"`    // that the agent's token was given to by a login, whose id Token is then
	Resource  string      `json:"resource,omitempty"`  // the URL that a client's token is for
	ExpiresAt time.Time   `json:"expires_at,omitzero"` // zero: never
}

// People keeps the tokens of members.
type People struct {
	kv  jetstream.KeyValue
	js  jetstream.JetStream
	log *eventlog.Log

	agents memberships
}

// OpenPeople opens the bucket.
func OpenPeople(ctx context.Context, conn *bus.Conn, log *eventlog.Log) (*People, error) {
	kv, err := conn.JS.KeyValue(ctx, bus.PeopleBucket)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the people bucket is not there; is the bus provisioned?")
	}
	return &People{kv: kv, js: conn.JS, log: log}, nil
}

func key(h Hash) string { return "token." + h.String() }

// Issue makes a token and gives it, this once, with the sequence of its event.
func (p *People) Issue(ctx context.Context, by id.Member, m Membership) (vault.Secret, Membership, uint64, error) {
	secret := NewToken()
	if m.Agent != "" {
		secret = NewSecret(agentPrefix)
	}
	m, seq, err := p.admit(ctx, string(by), secret, m)
	return secret, m, seq, err
}

// Admit makes a token valid and gives the sequence of the last event that this took, 0 when there was nothing to do.
// Its ids are derived from the token, so admitting it again adds nothing.
func (p *People) Admit(ctx context.Context, secret vault.Secret, m Membership) (seq uint64, err error) {
	_, seq, err = p.admit(ctx, actor, secret, m)
	return seq, err
}

func (p *People) admit(ctx context.Context, by string, secret vault.Secret, m Membership) (_ Membership, seq uint64, err error) {
	h := HashOf(secret)
	m.Token = id.Derive[id.Token](string(m.Tenant), h.String())
	// The record of the token comes before the token works: a crash between the two leaves a token that was issued
	// and opens nothing until it is admitted again.
	seq, err = p.once(ctx, eventlog.Draft{
		Tenant: m.Tenant, Key: string(m.Token), Actor: by,
		Event: token.Issued{Token: m.Token, Member: m.Member, Role: m.Role, Agent: m.Agent, Fingerprint: vault.Fingerprint(secret), ExpiresAt: m.ExpiresAt},
	})
	if err != nil {
		return m, 0, err
	}
	value, err := json.Marshal(m)
	if err != nil {
		return m, 0, problem.Wrap(err, problem.Internal, "the membership cannot be written")
	}
	if _, err = p.kv.Create(ctx, key(h), value); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return m, 0, problem.Wrap(err, problem.Unavailable, "the token could not be kept")
	}
	return m, seq, nil
}

// once appends the first event of an aggregate, unless it has one. The derived id covers two instances that look at
// the same moment.
func (p *People) once(ctx context.Context, d eventlog.Draft) (seq uint64, err error) {
	at := schemas.SubjectOf(d.Tenant, d.Event.Kind(), d.Key, "")
	next, stop := iter.Pull2(p.log.Read(ctx, schemas.Control, at.Filter(), 1))
	defer stop()
	if _, err, some := next(); some {
		return 0, err
	}
	d.ID = id.Derive[id.Event](string(d.Tenant), d.Key, d.Event.Kind(), "first")
	return p.log.Append(ctx, d)
}

// find gives what the token of that hash stands for.
func (p *People) find(ctx context.Context, h Hash, now time.Time) (Membership, error) {
	entry, err := p.kv.Get(ctx, key(h))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Membership{}, problem.New(problem.Unauthenticated, "the access token is not valid")
	}
	if err != nil {
		return Membership{}, problem.Wrap(err, problem.Unavailable, "access tokens cannot be checked now")
	}
	var m Membership
	if err := json.Unmarshal(entry.Value(), &m); err != nil || m.Agent == "" && !m.Role.Valid() {
		return Membership{}, problem.Wrap(err, problem.Internal, "the record of a token is damaged")
	}
	return m, m.holds(now)
}

// holds says whether the token's time is not over. Problems: unauthenticated.
func (m Membership) holds(now time.Time) error {
	if !m.ExpiresAt.IsZero() && !now.Before(m.ExpiresAt) {
		return problem.New(problem.Unauthenticated, "the access token expired at %s", m.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

// findAgent is find for the tokens of agents, which call many times a second. What a token stands for is written once and
// stays; whether it was revoked, or its agent removed, the control stream says and is asked each time.
func (p *People) findAgent(ctx context.Context, h Hash, now time.Time) (Membership, error) {
	if m, ok := p.agents.get(h); ok {
		return m, m.holds(now)
	}
	m, err := p.find(ctx, h, now)
	if err == nil && m.Agent != "" && m.Client == "" { // a client's tokens are few, short, and may be given back one by one
		p.agents.put(h, m)
	}
	return m, err
}

// memberships remembers what agents' tokens stand for.
type memberships struct {
	mu sync.RWMutex
	by map[Hash]Membership
}

// maxMemberships is how many are remembered. When there are more, all are looked up again.
const maxMemberships = 10_000

func (a *memberships) get(h Hash) (Membership, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	m, ok := a.by[h]
	return m, ok
}

func (a *memberships) put(h Hash, m Membership) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil || len(a.by) >= maxMemberships {
		a.by = map[Hash]Membership{}
	}
	a.by[h] = m
}
