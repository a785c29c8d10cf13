package toolbroker

import (
	"context"
	"net/url"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// A credential is sealed before the definition that uses it is said. Between the two, and after a crash there, the
// definition that is in force names another fingerprint than the credential has: it may be for another address, so it is
// given to nobody until the definition is said.
const (
	settleWithin = 2 * time.Second
	settleLook   = 20 * time.Millisecond
)

// credential opens the credential of a connection as it is defined. Problems: unavailable while it is being changed,
// conflict when the connection has another address by now.
func (s *Service) credential(ctx context.Context, tenant id.Tenant, def connection.Defined) (vault.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		secret, err := s.vault.Get(ctx, tenant, string(def.Connection))
		if err != nil {
			return vault.Secret{}, err
		}
		now, ok := s.state.Connection(tenant, id.Name(def.Connection))
		switch {
		case !ok || !sameOrigin(now.URL, def.URL) || !sameOrigin(now.GitURL, def.GitURL):
			return vault.Secret{}, problem.New(problem.Conflict, "connection %s is another by now; try again", id.Name(def.Connection))
		case vault.Fingerprint(secret) == now.Credential:
			return secret, nil
		}
		select {
		case <-ctx.Done():
			return vault.Secret{}, problem.New(problem.Unavailable, "the credential of connection %s is being changed; if that goes on, define the connection again", id.Name(def.Connection))
		case <-time.After(settleLook):
		}
	}
}

// sameOrigin says whether a credential for one address is for the other too.
func sameOrigin(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host != "" && x.Scheme == y.Scheme && x.Host == y.Host
}
