package manifest

import (
	"context"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// existing is a thing that the API has.
type existing struct {
	value   any
	revoked bool // a grant that somebody ended
	reason  string
}

// state is what the API has. Hooks are not in it: the API does not tell which there are.
type state map[Key]existing

// look asks for everything that files can be about.
func look(ctx context.Context, api *client.Client) (state, error) {
	s := state{}
	environments, err := api.Environments(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range environments {
		s[Key{Environment, id.Name(e.Environment)}] = existing{value: environment.Registered{Environment: e.Environment, Driver: e.Driver}}
	}
	connections, err := api.Connections(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range connections {
		c.Credential = "" // a fingerprint, which no file has
		s[Key{Connection, id.Name(c.Connection)}] = existing{value: c.Defined}
	}
	agents, err := api.Agents(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		s[Key{Agent, id.Name(a.Agent)}] = existing{value: a}
	}
	grants, err := api.Grants(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range grants {
		s[Key{Grant, id.Name(g.Grant)}] = existing{value: g.Created, revoked: g.State == client.Revoked, reason: g.Reason}
	}
	triggers, err := api.Triggers(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range triggers {
		s[Key{Trigger, id.Name(t.Trigger)}] = existing{value: t}
	}
	return s, nil
}
