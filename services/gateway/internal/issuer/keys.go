package issuer

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
)

// How keys are kept: fetched again when they are old, or when a token has a key that is not among them, but not oftener than
// every so often, whatever is sent; and used while the issuer does not answer, for a while.
const (
	keysFresh  = 10 * time.Minute
	keysUsable = time.Hour
	keysAgain  = 10 * time.Second
	maxKeys    = 256 << 10 // bytes of an answer
	fetchWait  = 5 * time.Second
)

// keys are one issuer's.
type keys struct {
	of   Issuer
	ways *egress.Origins
	now  func() time.Time

	mu      sync.Mutex // held while they are fetched: who comes meanwhile waits for the same answer
	set     jose.JSONWebKeySet
	fetched time.Time
	tried   time.Time
	failed  error
}

// find gives the key that a token says it was signed with. Problems: unauthenticated, unavailable.
func (k *keys) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) (*jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	found := k.pick(kid, alg)
	if (found == nil || now.Sub(k.fetched) > keysFresh) && (k.tried.IsZero() || now.Sub(k.tried) >= keysAgain) {
		k.tried = now
		// The fetch is everybody's: it does not end with the request that began it.
		fetch, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchWait)
		set, err := k.fetch(fetch)
		cancel()
		if k.failed = err; err == nil {
			k.set, k.fetched = set, now
		}
		found = k.pick(kid, alg)
	}
	switch {
	case now.Sub(k.fetched) > keysUsable:
		return nil, problem.Wrap(k.failed, problem.Unavailable, "the keys of the token's issuer cannot be fetched now")
	case found == nil && k.failed != nil:
		return nil, problem.Wrap(k.failed, problem.Unavailable, "the keys of the token's issuer cannot be fetched anew now")
	case found == nil:
		return nil, problem.New(problem.Unauthenticated, "the token's key is none of its issuer's")
	}
	return found, nil
}

// pick gives the one key that fits. A token without a key's id is of the only one there is.
func (k *keys) pick(kid string, alg jose.SignatureAlgorithm) *jose.JSONWebKey {
	var found *jose.JSONWebKey
	for i := range k.set.Keys {
		key := &k.set.Keys[i]
		if kid != "" && key.KeyID != kid || key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(alg) || !key.Valid() || !key.IsPublic() {
			continue
		}
		if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < 2048 {
			continue
		}
		if found != nil {
			return nil
		}
		found = key
	}
	return found
}

func (k *keys) fetch(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	at := k.of.JWKS
	if at == "" {
		if at, err = k.discover(ctx); err != nil {
			return set, err
		}
	}
	err = k.get(ctx, at, &set)
	return set, err
}

// discover asks the issuer where its keys are: where RFC 8414, section 3.1, has it, then where OpenID Connect has it.
func (k *keys) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(k.of.Issuer) // validated
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	for _, at := range []string{u.Scheme + "://" + u.Host + "/.well-known/oauth-authorization-server" + path, strings.TrimSuffix(k.of.Issuer, "/") + "/.well-known/openid-configuration"} {
		var doc struct {
			Issuer string `json:"issuer"`
			JWKS   string `json:"jwks_uri"`
		}
		if err = k.get(ctx, at, &doc); err != nil {
			continue
		}
		if doc.Issuer != k.of.Issuer {
			return "", problem.New(problem.Upstream, "the metadata at %s is of another issuer", at)
		}
		if err := checkURL(doc.JWKS); err != nil {
			return "", problem.New(problem.Upstream, "the metadata at %s names no https address of keys", at)
		}
		return doc.JWKS, nil
	}
	return "", err
}

func (k *keys) get(ctx context.Context, at string, into any) error {
	way, err := k.ways.To(at, k.of.Private)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := way.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return problem.New(problem.Upstream, "%s answers %d", at, resp.StatusCode)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
