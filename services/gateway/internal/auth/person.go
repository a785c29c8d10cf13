package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Person is what is known of a member as a human being. It is in no event, so that it can be erased.
type Person struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
}

// Bounds of a person, in bytes (an address: RFC 5321, 4.5.3.1.3).
const (
	maxName  = 100
	maxEmail = 254
)

func (p Person) check() error {
	if p.Name == "" || len(p.Name) > maxName || !utf8.ValidString(p.Name) || strings.TrimSpace(p.Name) != p.Name ||
		strings.ContainsFunc(p.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return problem.New(problem.Invalid, "a member has a name of 1 to %d bytes that can be printed, without spaces around it", maxName)
	}
	if _, err := id.Parse[id.Member](p.Name); err == nil {
		return problem.New(problem.Invalid, "%.60q is a member's id; choose a name that is none", p.Name)
	}
	if p.Email == "" {
		return nil
	}
	if a, err := mail.ParseAddress(p.Email); err != nil || a.Address != p.Email || len(p.Email) > maxEmail {
		return problem.New(problem.Invalid, "the e-mail address is none, or has more than the address itself")
	}
	return nil
}

func personKey(tenant id.Tenant, m id.Member) string {
	return "person." + string(tenant) + "." + string(m)
}

// Introduce keeps who a member is.
func (p *People) Introduce(ctx context.Context, tenant id.Tenant, m id.Member, who Person) error {
	if err := who.check(); err != nil {
		return err
	}
	value, err := json.Marshal(who)
	if err == nil {
		_, err = p.kv.Put(ctx, personKey(tenant, m), value)
	}
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the member's name could not be kept")
	}
	return nil
}

// Person gives who a member is; the zero value when that is not known, or was erased.
func (p *People) Person(ctx context.Context, tenant id.Tenant, m id.Member) (who Person, err error) {
	entry, err := p.kv.Get(ctx, personKey(tenant, m))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Person{}, nil
	}
	if err != nil {
		return Person{}, problem.Wrap(err, problem.Unavailable, "members' names cannot be read now")
	}
	if err := json.Unmarshal(entry.Value(), &who); err != nil {
		return Person{}, problem.New(problem.Internal, "the record of %s is damaged", m)
	}
	return who, nil
}

// Erase forgets who a member is.
func (p *People) Erase(ctx context.Context, tenant id.Tenant, m id.Member) error {
	if err := p.kv.Purge(ctx, personKey(tenant, m)); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the member's name could not be erased")
	}
	return nil
}
