package auth

import (
	"time"

	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Identity is an authenticated member.
type Identity struct {
	Tenant id.Tenant   `json:"tenant"`
	Member id.Member   `json:"member"`
	Role   member.Role `json:"role"`
	Token  id.Token    `json:"token"`
	// ExpiresAt is when the token ends; zero: never. What it makes does not outlive it.
	ExpiresAt time.Time `json:"expires_at,omitzero"`

	hash    Hash // of the token, also when a session stands for it
	session bool
}

// Caller is the identity as other services are told of it.
func (i Identity) Caller() rpc.Caller {
	return rpc.Caller{Tenant: i.Tenant, Actor: string(i.Member), Role: string(i.Role)}
}

// Session says whether a browser's cookie made the identity, which other web pages could have it send.
func (i Identity) Session() bool { return i.session }
