// Package grant holds the events of the permission of one agent to call some tools.
package grant

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Created is the full state of an active grant.
type Created struct {
	Grant     id.Grant  `json:"grant"`
	Agent     id.Agent  `json:"agent"`
	Run       id.Run    `json:"run,omitempty"` // when set, the grant serves this run only
	Selector  Selector  `json:"selector"`
	Approval  Approval  `json:"approval"`
	Tainted   bool      `json:"tainted,omitempty"` // writes of a tainted run need no approval beyond the rule
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Kind implements schemas.Event.
func (Created) Kind() string { return "grant.created" }

// Selector picks tools. Tool is a glob over connection.tool, where '*' stands for any run of characters but '.'.
// Repos, when not empty, lists the only "owner/name" that GitHub tools may touch.
type Selector struct {
	Tool  string   `json:"tool"`
	Repos []string `json:"repos,omitempty"`
}

// Approval is the rule by which calls under a grant wait for a person.
type Approval string

// The approval rules.
const (
	Never  Approval = "never"
	Always Approval = "always"
)

// Revoked ends a grant. From the moment it is acknowledged, no call starts under it.
type Revoked struct {
	Grant  id.Grant `json:"grant"`
	Agent  id.Agent `json:"agent"`
	Reason string   `json:"reason,omitempty"`
}

// Kind implements schemas.Event.
func (Revoked) Kind() string { return "grant.revoked" }
