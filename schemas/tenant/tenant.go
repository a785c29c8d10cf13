// Package tenant holds the events of an organisation.
package tenant

import "github.com/execwarden/execwarden/schemas/id"

// Created says that a tenant exists.
type Created struct {
	Tenant id.Tenant `json:"tenant"`
	Name   string    `json:"name"`
}

// Kind implements schemas.Event.
func (Created) Kind() string { return "tenant.created" }
