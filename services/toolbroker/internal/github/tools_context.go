package github

import (
	"context"

	"github.com/execwarden/execwarden/schemas/connection"
)

var contextTools = []tool{{
	name: "get_me", effect: connection.Pure, risk: reads,
	about:  "Who the credential is: the user, or the GitHub App.",
	routes: []string{"GET user"},
	call:   getMe,
}}

type me struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	Name  string `json:"name,omitempty"`
	Type  string `json:"type"`
	Owner string `json:"owner,omitempty"`
}

func getMe(ctx context.Context, s session, _ arguments) (any, error) {
	_, app, err := s.provider.credentials.read(ctx)
	if err != nil {
		return nil, err
	}
	if app != nil { // no token of an App's may ask for a user
		return app.identity(ctx)
	}
	u, _, err := s.Users.Get(ctx, "")
	if err != nil {
		return nil, err
	}
	return me{Login: u.GetLogin(), ID: u.GetID(), Name: u.GetName(), Type: u.GetType()}, nil
}
