package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/roster"
)

// maxReason is the longest reason, in bytes.
const maxReason = 4 << 10

type memberList struct {
	Members []memberRow `json:"members"`
}

type memberRow struct {
	Member id.Member   `json:"member"`
	Name   string      `json:"name,omitempty"`
	Email  string      `json:"email,omitempty"`
	Role   member.Role `json:"role"`
	State  string      `json:"state"` // "active", "removed"
	Reason string      `json:"reason,omitempty"`
}

func (a *API) members(r *http.Request, who auth.Identity, _ []byte) (memberList, error) {
	out := memberList{Members: []memberRow{}}
	for _, m := range a.State.Members(who.Tenant) {
		person, err := a.People.Person(r.Context(), who.Tenant, m.Member)
		if err != nil {
			return out, err
		}
		row := memberRow{Member: m.Member, Name: person.Name, Role: m.Role, State: "active", Reason: m.Reason}
		if m.Removed {
			row.State = "removed"
		}
		if who.Role.MayConfigure() {
			row.Email = person.Email
		}
		out.Members = append(out.Members, row)
	}
	return out, nil
}

// someone reads a reference to a member, an id or a name. Of those with a name, one who is a member counts before those
// who were.
func (a *API) someone(ctx context.Context, tenant id.Tenant, text string) (id.Member, error) {
	if m, err := id.Parse[id.Member](text); err == nil {
		return m, nil
	}
	var found, gone []id.Member
	for _, m := range a.State.Members(tenant) {
		person, err := a.People.Person(ctx, tenant, m.Member)
		if err != nil {
			return "", err
		}
		switch {
		case text == "" || !strings.EqualFold(person.Name, text):
		case m.Removed:
			gone = append(gone, m.Member)
		default:
			found = append(found, m.Member)
		}
	}
	if len(found) == 0 {
		found = gone
	}
	switch len(found) {
	case 0:
		return "", problem.New(problem.NotFound, "there is no member named %.100q", text)
	case 1:
		return found[0], nil
	}
	return "", problem.New(problem.Conflict, "%d members are, or were, named %.100q; say which by id", len(found), text)
}

type memberInput struct {
	auth.Person
	Role      member.Role `json:"role"`
	ExpiresAt time.Time   `json:"expires_at,omitzero"` // of the token
}

// issued is a token, this once.
type issued struct {
	Member    id.Member   `json:"member"`
	Name      string      `json:"name,omitempty"`
	Role      member.Role `json:"role,omitempty"`
	Agent     id.Agent    `json:"agent,omitempty"` // whose token it is, where it is an agent's; Member made it then
	Token     id.Token    `json:"token"`
	Secret    string      `json:"secret"`
	ExpiresAt time.Time   `json:"expires_at,omitzero"`
}

func (a *API) addMember(r *http.Request, who auth.Identity, body []byte) (issued, error) {
	in, err := read[memberInput](r, body)
	if err != nil {
		return issued{}, err
	}
	expires, err := lasting(who, in.ExpiresAt, time.Now())
	if err != nil {
		return issued{}, err
	}
	m := id.New[id.Member]()
	// The name comes first. A crash here leaves the name of nobody, under an id that nobody will have.
	if err := a.People.Introduce(r.Context(), who.Tenant, m, in.Person); err != nil {
		return issued{}, err
	}
	seq, err := roster.Change(r.Context(), a.Log, who.Tenant, string(who.Member), m, func(list *roster.Roster) (schemas.Event, error) {
		for other := range list.Roles {
			person, err := a.People.Person(r.Context(), who.Tenant, other)
			if err != nil {
				return nil, err
			}
			if strings.EqualFold(person.Name, in.Name) {
				return nil, problem.New(problem.Conflict, "%s has the name %.100q", other, in.Name)
			}
		}
		return list.Add(by(who), m, in.Role)
	})
	if err != nil {
		if problem.CodeOf(err) != problem.Pending { // it may be recorded
			_ = a.People.Erase(context.WithoutCancel(r.Context()), who.Tenant, m)
		}
		return issued{}, err
	}
	// A crash here leaves a member without a token, for whom an owner makes one.
	a.Peers.Seen(r.Context(), seq)
	return a.issue(r.Context(), who, auth.Membership{Tenant: who.Tenant, Member: m, Role: in.Role, ExpiresAt: expires}, in.Name)
}

func (a *API) issue(ctx context.Context, who auth.Identity, m auth.Membership, name string) (issued, error) {
	secret, m, seq, err := a.People.Issue(ctx, who.Member, m)
	if err != nil {
		return issued{}, err
	}
	a.Peers.Seen(ctx, seq)
	return issued{Member: m.Member, Name: name, Role: m.Role, Agent: m.Agent, Token: m.Token, Secret: secret.Reveal(), ExpiresAt: m.ExpiresAt}, nil
}

func by(who auth.Identity) roster.By { return roster.By{Member: who.Member, Role: who.Role} }

type roleInput struct {
	Role member.Role `json:"role"`
}

func (a *API) setRole(r *http.Request, who auth.Identity, body []byte) (ask.InForce, error) {
	in, err := read[roleInput](r, body)
	if err != nil {
		return ask.InForce{}, err
	}
	m, err := a.someone(r.Context(), who.Tenant, r.PathValue("name"))
	if err != nil {
		return ask.InForce{}, err
	}
	began := time.Now()
	seq, err := roster.Change(r.Context(), a.Log, who.Tenant, string(who.Member), m, func(list *roster.Roster) (schemas.Event, error) {
		return list.SetRole(by(who), m, in.Role)
	})
	if err != nil {
		return ask.InForce{}, err
	}
	return a.inForce(r.Context(), who, seq, began, heeds...)
}

// removeMember is answered when no instance takes the member for one any more.
func (a *API) removeMember(r *http.Request, who auth.Identity, body []byte) (ask.InForce, error) {
	in, err := readOptional[revocation](r, body)
	if err != nil {
		return ask.InForce{}, err
	}
	if len(in.Reason) > maxReason {
		return ask.InForce{}, problem.New(problem.Invalid, "a reason has at most %d bytes", maxReason)
	}
	m, err := a.someone(r.Context(), who.Tenant, r.PathValue("name"))
	if err != nil {
		return ask.InForce{}, err
	}
	began := time.Now()
	seq, err := roster.Change(r.Context(), a.Log, who.Tenant, string(who.Member), m, func(list *roster.Roster) (schemas.Event, error) {
		var stopped []id.Token
		for _, k := range a.State.Tokens(who.Tenant) {
			if k.Member == m && a.stateOf(who.Tenant, k, time.Now()) == "active" {
				stopped = append(stopped, k.Issued.Token)
			}
		}
		return list.Remove(by(who), m, in.Reason, stopped)
	})
	if err != nil {
		return ask.InForce{}, err
	}
	// Who asks again after a removal that was not confirmed waits for the same. What was decided stays decided.
	return a.inForce(r.Context(), who, seq, began, heeds...)
}

// eraseMember forgets the name and the address of somebody who was removed. Events have neither.
func (a *API) eraseMember(r *http.Request, who auth.Identity, _ []byte) (struct{}, error) {
	m, err := a.someone(r.Context(), who.Tenant, r.PathValue("name"))
	if err != nil {
		return struct{}{}, err
	}
	for _, known := range a.State.Members(who.Tenant) {
		if known.Member == m && known.Removed {
			return struct{}{}, a.People.Erase(r.Context(), who.Tenant, m)
		}
	}
	return struct{}{}, problem.New(problem.Conflict, "%s is no member that was removed; remove them first", m)
}

// heeds are the services that act on who is a member: they let people in, count votes, and dispatch what was approved.
var heeds = []schemas.Service{schemas.Gateway, schemas.Approvals, schemas.Toolbroker}

// inForce waits until a change holds in every instance of some services. It counts from when it was asked for.
func (a *API) inForce(ctx context.Context, who auth.Identity, seq uint64, began time.Time, services ...schemas.Service) (ask.InForce, error) {
	done, err := a.Peers.InForceAmong(ctx, who, seq, services...)
	done.ConfirmedMS = float64(time.Since(began).Microseconds()) / 1000
	return done, err
}
