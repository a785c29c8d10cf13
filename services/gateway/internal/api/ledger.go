package api

import (
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func (a *API) verify(r *http.Request, who auth.Identity, body []byte) (ask.Verified, error) {
	if _, err := readOptional[struct{}](r, body); err != nil {
		return ask.Verified{}, err
	}
	return a.Peers.Verify(r.Context(), who)
}

type position struct {
	ask.Cursor
	Text string `json:"cursor"` // as ?after= takes it
}

func (a *API) position(r *http.Request, who auth.Identity, _ []byte) (position, error) {
	c, err := a.Peers.Position(r.Context(), who)
	return position{c, c.String()}, err
}
