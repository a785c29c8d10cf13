// Package member holds the events of a person in a tenant. Names and e-mail addresses are never in events, so that
// both can be erased.
package member

import "github.com/execwarden/execwarden/schemas/id"

// Role is what a member may do.
type Role string

// The roles, from the widest to the narrowest. An auditor only reads.
const (
	Owner    Role = "owner"
	Admin    Role = "admin"
	Approver Role = "approver"
	Auditor  Role = "auditor"
)

// Valid says whether r is one of the roles.
func (r Role) Valid() bool { return r == Owner || r == Admin || r == Approver || r == Auditor }

// AtLeast says whether r may do everything that other may.
func (r Role) AtLeast(other Role) bool { return ranks[r] >= ranks[other] && ranks[r] > 0 }

var ranks = map[Role]int{Auditor: 1, Approver: 2, Admin: 3, Owner: 4}

// MayConfigure says whether r may change agents, connections, grants and triggers.
func (r Role) MayConfigure() bool { return r == Owner || r == Admin }

// MayApprove says whether r may decide held calls.
func (r Role) MayApprove() bool { return r == Owner || r == Admin || r == Approver }

// Narrower is the role that allows less. Of one that is no role, nothing is allowed.
func Narrower(a, b Role) Role {
	switch {
	case !a.Valid() || !b.Valid():
		return ""
	case a.AtLeast(b):
		return b
	}
	return a
}

// MayDecide says whether r may decide a held call that wants the role least, or one that wants none when it is empty.
func (r Role) MayDecide(least Role) bool { return r.MayApprove() && (least == "" || r.AtLeast(least)) }

// Added is the full state of a membership. A member who gets another role is added again.
type Added struct {
	Member id.Member `json:"member"`
	Role   Role      `json:"role"`
}

// Kind implements schemas.Event.
func (Added) Kind() string { return "member.added" }

// Removed says that somebody is a member no more, for good: whoever comes back gets another id. Tokens are those that
// stopped working with it.
type Removed struct {
	Member id.Member  `json:"member"`
	Reason string     `json:"reason,omitempty"`
	Tokens []id.Token `json:"tokens,omitempty"`
}

// Kind implements schemas.Event.
func (Removed) Kind() string { return "member.removed" }
