package client

import (
	"context"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Member is a member with what became of them.
type Member struct {
	Member id.Member   `json:"member"`
	Name   string      `json:"name,omitempty"`
	Email  string      `json:"email,omitempty"`
	Role   member.Role `json:"role"`
	State  string      `json:"state"` // "active", "removed"
	Reason string      `json:"reason,omitempty"`
}

// Issued is a token with its secret, which is not to be had again.
type Issued struct {
	Member    id.Member   `json:"member"`
	Name      string      `json:"name,omitempty"`
	Role      member.Role `json:"role,omitempty"`
	Agent     id.Agent    `json:"agent,omitempty"`
	Token     id.Token    `json:"token"`
	Secret    string      `json:"secret,omitempty"`
	ExpiresAt time.Time   `json:"expires_at,omitzero"`
}

// Token is what is known of a token.
type Token struct {
	Token       id.Token    `json:"token"`
	Member      id.Member   `json:"member"`
	Name        string      `json:"name,omitempty"`
	Agent       id.Agent    `json:"agent,omitempty"`    // whose it is, where it is an agent's; Member made it then
	Client      id.Client   `json:"client,omitempty"`   // that a login gave it to
	Resource    string      `json:"resource,omitempty"` // the URL that a client's is for
	Role        member.Role `json:"role"`
	Fingerprint string      `json:"fingerprint"`
	IssuedAt    time.Time   `json:"issued_at"`
	IssuedBy    string      `json:"issued_by"`
	ExpiresAt   time.Time   `json:"expires_at,omitzero"`
	State       string      `json:"state"` // "active", "expired", "revoked", "removed"
	Reason      string      `json:"reason,omitempty"`
}

// NewMember is somebody to add.
type NewMember struct {
	Name      string      `json:"name"`
	Email     string      `json:"email,omitempty"`
	Role      member.Role `json:"role"`
	ExpiresAt time.Time   `json:"expires_at,omitzero"` // of the token
}

// NewToken is a token to make; empty fields are the caller's own, as wide and lasting as may be.
type NewToken struct {
	Member    string      `json:"member,omitempty"`
	Agent     id.Agent    `json:"agent,omitempty"` // an external agent's token
	Role      member.Role `json:"role,omitempty"`
	ExpiresAt time.Time   `json:"expires_at,omitzero"`
}

// Members lists the members, those who were removed too.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	list, err := get[struct {
		Members []Member `json:"members"`
	}](ctx, c, "/v1/members", nil)
	return list.Members, err
}

// AddMember adds somebody, and makes a token for them.
func (c *Client) AddMember(ctx context.Context, m NewMember) (Issued, error) {
	return send[Issued](ctx, c, http.MethodPost, "/v1/members", nil, m)
}

// SetRole gives a member, by id or name, another role.
func (c *Client) SetRole(ctx context.Context, who string, role member.Role) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodPut, "/v1/members/"+segment(who)+"/role", nil, struct {
		Role member.Role `json:"role"`
	}{role})
}

// RemoveMember removes a member, by id or name, for good.
func (c *Client) RemoveMember(ctx context.Context, who, reason string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodPost, "/v1/members/"+segment(who)+"/remove", nil, because{reason})
}

// EraseMember erases the name and address of somebody who was removed.
func (c *Client) EraseMember(ctx context.Context, who string) error {
	_, err := send[struct{}](ctx, c, http.MethodPost, "/v1/members/"+segment(who)+"/erase", nil, struct{}{})
	return err
}

// Tokens lists the access tokens, those that do not work any more too.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	list, err := get[struct {
		Tokens []Token `json:"tokens"`
	}](ctx, c, "/v1/tokens", nil)
	return list.Tokens, err
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, k NewToken) (Issued, error) {
	return send[Issued](ctx, c, http.MethodPost, "/v1/tokens", nil, k)
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, which id.Token, reason string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodPost, "/v1/tokens/"+segment(string(which))+"/revoke", nil, because{reason})
}

type because struct {
	Reason string `json:"reason,omitempty"`
}
