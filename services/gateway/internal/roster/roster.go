// Package roster decides on a tenant's members: who may add, change and remove whom. At least one owner remains, only
// an owner makes or removes owners, and nobody gives a role that is wider than their own.
//
// The rules span members, so all events of a tenant's members are one aggregate: of two owners who remove each other
// at the same moment, the second decides again on what the first left, and is refused.
package roster

import (
	"context"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// maxMembers is how many members a tenant may have.
const maxMembers = 1000

// Roster is a tenant's members as far as its events go.
type Roster struct {
	Roles map[id.Member]member.Role // of those who are members now
	Gone  map[id.Member]bool        // who was removed; for good
	Seq   uint64                    // of the last event
}

// New makes an empty roster.
func New() Roster {
	return Roster{Roles: map[id.Member]member.Role{}, Gone: map[id.Member]bool{}}
}

// Apply takes the next event.
func (r *Roster) Apply(seq uint64, ev schemas.Event) {
	r.Seq = seq
	switch ev := ev.(type) {
	case member.Added:
		if !r.Gone[ev.Member] {
			r.Roles[ev.Member] = ev.Role
		}
	case member.Removed:
		delete(r.Roles, ev.Member)
		r.Gone[ev.Member] = true
	}
}

// By is who asks, in the role of the token that was used.
type By struct {
	Member id.Member
	Role   member.Role
}

// acting is the role in which somebody acts now: whoever was removed or narrowed since the request came acts so.
func (r *Roster) acting(by By) (member.Role, error) {
	own, ok := r.Roles[by.Member]
	if !ok {
		return "", problem.New(problem.Unauthenticated, "%s is not a member any more", by.Member)
	}
	role := member.Narrower(by.Role, own)
	if !role.MayConfigure() {
		return "", problem.New(problem.Denied, "a member with role %s may not change members", role)
	}
	return role, nil
}

// may checks that by may give or take role.
func (r *Roster) may(by By, role member.Role) error {
	acting, err := r.acting(by)
	switch {
	case err != nil:
		return err
	case !role.Valid():
		return problem.New(problem.Invalid, "role %.40q is not owner, admin, approver or auditor", role)
	case !acting.AtLeast(role):
		return problem.New(problem.Denied, "a member with role %s may not give or take the role %s", acting, role)
	}
	return nil
}

func (r *Roster) lastOwner(m id.Member) error {
	if r.Roles[m] != member.Owner {
		return nil
	}
	for other, role := range r.Roles {
		if other != m && role == member.Owner {
			return nil
		}
	}
	return problem.New(problem.Conflict, "%s is the last owner; make somebody else an owner first", m)
}

// Add decides on a new member.
func (r *Roster) Add(by By, m id.Member, role member.Role) (schemas.Event, error) {
	if err := r.may(by, role); err != nil {
		return nil, err
	}
	if _, ok := r.Roles[m]; ok || r.Gone[m] {
		return nil, problem.New(problem.Conflict, "%s is, or was, a member", m)
	}
	if len(r.Roles) >= maxMembers {
		return nil, problem.New(problem.Conflict, "there are %d members, which is the most", maxMembers)
	}
	return member.Added{Member: m, Role: role}, nil
}

// SetRole decides on another role. It gives nil when it is the member's role already.
func (r *Roster) SetRole(by By, m id.Member, role member.Role) (schemas.Event, error) {
	old, ok := r.Roles[m]
	if !ok {
		return nil, problem.New(problem.NotFound, "there is no member %s", m)
	}
	for _, either := range []member.Role{old, role} {
		if err := r.may(by, either); err != nil {
			return nil, err
		}
	}
	if old == role {
		return nil, nil
	}
	if err := r.lastOwner(m); err != nil {
		return nil, err
	}
	return member.Added{Member: m, Role: role}, nil
}

// Remove decides on a removal. It gives nil when the member was removed before.
func (r *Roster) Remove(by By, m id.Member, reason string, tokens []id.Token) (schemas.Event, error) {
	if _, err := r.acting(by); err != nil {
		return nil, err
	}
	role, ok := r.Roles[m]
	switch {
	case r.Gone[m]:
		return nil, nil
	case !ok:
		return nil, problem.New(problem.NotFound, "there is no member %s", m)
	}
	if err := r.may(by, role); err != nil {
		return nil, err
	}
	if err := r.lastOwner(m); err != nil {
		return nil, err
	}
	return member.Removed{Member: m, Reason: reason, Tokens: tokens}, nil
}

// attempts is how often a change is decided anew because somebody else's came first.
const attempts = 16

// Change appends what decide makes of the roster as it stands, and gives the sequence of the last event then. decide
// may be asked several times; when it gives nil there is nothing to do. actor is whom the event is by.
func Change(ctx context.Context, log *eventlog.Log, tenant id.Tenant, actor string, about id.Member, decide func(*Roster) (schemas.Event, error)) (seq uint64, err error) {
	entry := schemas.EntryOf(member.Added{})
	filter := entry.Filter(schemas.SubjectOf(tenant, entry.Kind, string(about), ""))
	// The same id at every attempt: what was stored although its answer was lost is found, not stored again.
	event := id.New[id.Event]()
	for range attempts {
		r := New()
		for e, err := range log.Read(ctx, entry.Stream, filter, 1) {
			if err != nil {
				return 0, err
			}
			if ev, err := e.Envelope.Decode(); err == nil {
				r.Apply(e.Seq, ev)
			}
		}
		ev, err := decide(&r)
		if err != nil || ev == nil {
			return r.Seq, err
		}
		seq, err := log.AppendAfter(ctx, eventlog.Draft{ID: event, Event: ev, Tenant: tenant, Key: string(about), Actor: actor}, r.Seq)
		if problem.CodeOf(err) != problem.Conflict {
			return seq, err
		}
	}
	return 0, problem.New(problem.Busy, "others change members at the same moment; try again")
}
