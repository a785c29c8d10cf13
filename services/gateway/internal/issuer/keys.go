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
	of      Issuer
	ways    *egress.Origins
	now     func() time.Time
	ctx     context.Context // of fetches, which are everybody's: none ends with the request that began it
	running *sync.WaitGroup

	mu       sync.Mutex // never held over the network
	set      jose.JSONWebKeySet
	fetched  time.Time
	tried    time.Time
	failed   error
	fetching chan struct{} // closed when the fetch that is under way has ended; nil: none is
}

// find gives the key that a token says it was signed with. Who finds that keys have to be fetched has it done, once, and waits for
// that; who comes meanwhile waits only for want of a key. Problems: unauthenticated, unavailable.
func (k *keys) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) (*jose.JSONWebKey, error) {
	k.mu.Lock()
	now := k.now()
	key := k.pick(kid, alg)
	wait := k.fetching
	if wait != nil && key != nil && now.Sub(k.fetched) <= keysUsable {
		wait = nil
	}
	if k.fetching == nil && (key == nil || now.Sub(k.fetched) > keysFresh) && (k.tried.IsZero() || now.Sub(k.tried) >= keysAgain) && k.ctx.Err() == nil {
		k.tried = now
		k.fetching = make(chan struct{})
		wait = k.fetching
		k.running.Go(k.renew)
	}
	k.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, problem.Wrap(ctx.Err(), problem.Unavailable, "the keys of the token's issuer are being fetched, and that takes too long")
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, key = k.now(), k.pick(kid, alg)
	switch {
	case now.Sub(k.fetched) > keysUsable:
		return nil, problem.Wrap(k.failed, problem.Unavailable, "the keys of the token's issuer cannot be fetched now")
	case key == nil && k.failed != nil:
		return nil, problem.Wrap(k.failed, problem.Unavailable, "the keys of the token's issuer cannot be fetched anew now")
	case key == nil:
		return nil, problem.New(problem.Unauthenticated, "the token's key is none of its issuer's")
	}
	return key, nil
}

// renew fetches the keys, and lets go of who waits for them.
func (k *keys) renew() {
	ctx, cancel := context.WithTimeout(k.ctx, fetchWait)
	defer cancel()
	set, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err; err == nil {
		k.set, k.fetched = set, k.tried // as of when they were asked for
	}
	close(k.fetching)
	k.fetching = nil
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
