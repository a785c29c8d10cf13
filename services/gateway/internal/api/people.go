package api

import (
	"net/http"
	"net/url"
	"time"

	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func (a *API) whoami(_ *http.Request, who auth.Identity, _ []byte) (auth.Identity, error) {
	return who, nil
}

type login struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// newLogin makes a link that opens the console in a browser, once.
func (a *API) newLogin(r *http.Request, who auth.Identity, body []byte) (login, error) {
	if _, err := readOptional[struct{}](r, body); err != nil {
		return login{}, err
	}
	code, expires, err := a.Gate.NewCode(who)
	if err != nil {
		return login{}, err
	}
	return login{a.Site.URL("/login", url.Values{"code": {code}}), expires.UTC()}, nil
}
