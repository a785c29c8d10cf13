package github

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// app gets installation tokens for a GitHub App, each for one repository and the permissions of one tool. They are kept
// until shortly before they expire, and revoked when the connection closes or somebody loses a
// grant.
type app struct {
	base   *url.URL
	next   http.RoundTripper
	key    *rsa.PrivateKey
	issuer string

	flights singleflight.Group

	mu           sync.Mutex
	installation map[string]int64 // by owner, in lower case
	fixed        int64            // the credential's own, 0 when it names none
	tokens       map[tokenKey]minted
	skew         time.Duration // what GitHub's clock is ahead of ours
	renounced    int           // how often: a token that was asked for before is not kept
	closed       bool
}

// tokenKey is what a token is for.
type tokenKey struct {
	installation int64
	repo         string // owner/name in lower case
	permissions  string
}

type minted struct {
	token   vault.Secret
	expires time.Time
}

// Bounds of an App's own requests.
const (
	mintTimeout   = 20 * time.Second
	revokeTimeout = 5 * time.Second
	expiryMargin  = 2 * time.Minute // a token that a call starts with should see its end
	maxTokens     = 512
)

// appID is an id of an App, or its client id. People write it as a number and as text.
type appID string

// UnmarshalJSON implements json.Unmarshaler.
func (a *appID) UnmarshalJSON(raw []byte) error {
	*a = appID(strings.Trim(string(raw), `"`))
	return nil
}

// readApp reads an App's credential. Its errors show nothing of it.
func readApp(text string, base *url.URL, next http.RoundTripper) (*app, error) {
	var c struct {
		AppID          appID  `json:"app_id"`
		PrivateKey     string `json:"private_key"`
		InstallationID appID  `json:"installation_id"`
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if dec.Decode(&c) != nil || !wordPattern.MatchString(string(c.AppID)) {
		return nil, problem.New(problem.Invalid, "the App's credential is not {app_id, private_key, installation_id}, of which the last may be left out")
	}
	a := &app{base: base, next: next, issuer: string(c.AppID), installation: map[string]int64{}, tokens: map[tokenKey]minted{}}
	var err error
	if c.InstallationID != "" {
		if a.fixed, err = number[int64](1, maxID)("installation_id", json.RawMessage(c.InstallationID)); err != nil {
			return nil, err
		}
	}
	a.key, err = readPrivateKey(c.PrivateKey)
	return a, err
}

// token gives a token for a call. refused is one that GitHub did not take, so that it is not given again.
func (a *app) token(ctx context.Context, s *scope, refused string) (vault.Secret, error) {
	owner, name, ok := strings.Cut(s.repo, "/")
	if !ok || owner == "" || name == "" || len(s.needs) == 0 {
		// An empty list would be left out of the request, and the token would be for everything that the App may.
		return vault.Secret{}, &refusal{Text: "an App's tokens are for one repository and some permissions, and this tool is about none"}
	}
	if kept, ok := a.kept(s, refused); ok {
		return kept, nil
	}
	// One request for all that wait, which outlives the caller that happened to be first.
	flight := a.flights.DoChan(strings.ToLower(s.repo)+" "+s.needs.String(), func() (any, error) {
		// Not the call's context: what watches its requests for an effect must not see these.
		ctx, cancel := context.WithTimeout(context.Background(), mintTimeout)
		defer cancel()
		if kept, ok := a.kept(s, refused); ok {
			return kept, nil
		}
		return a.mint(ctx, owner, name, s.needs)
	})
	select {
	case got := <-flight:
		token, _ := got.Val.(vault.Secret)
		return token, got.Err
	case <-ctx.Done():
		return vault.Secret{}, ctx.Err()
	}
}

// String is the permissions in one spelling.
func (p permissions) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		b.WriteString(name + ":" + p[name] + " ")
	}
	return b.String()
}

func (a *app) kept(s *scope, refused string) (vault.Secret, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	owner, _, _ := strings.Cut(strings.ToLower(s.repo), "/")
	id := a.fixed
	if id == 0 {
		id = a.installation[owner]
	}
	key := tokenKey{id, strings.ToLower(s.repo), s.needs.String()}
	m, ok := a.tokens[key]
	if !ok {
		return vault.Secret{}, false
	}
	if m.token.Reveal() == refused || time.Now().Add(a.skew+expiryMargin).After(m.expires) {
		delete(a.tokens, key)
		return vault.Secret{}, false
	}
	return m.token, true
}

// maxMints is how often a token is asked for that was renounced before it came.
const maxMints = 3

// mint gets a new token, and finds the installation again when the one that was known is gone: an App may be taken away
// and installed anew.
func (a *app) mint(ctx context.Context, owner, name string, needs permissions) (vault.Secret, error) {
	for range maxMints {
		a.mu.Lock()
		era := a.renounced
		a.mu.Unlock()
		id, known, err := a.installed(ctx, owner, name)
		if err != nil {
			return vault.Secret{}, err
		}
		m, status, err := a.request(ctx, id, name, needs)
		if status == http.StatusNotFound && known {
			a.forget(owner)
			if id, _, err = a.installed(ctx, owner, name); err != nil {
				return vault.Secret{}, err
			}
			m, _, err = a.request(ctx, id, name, needs)
		}
		if err != nil {
			return vault.Secret{}, err
		}
		if a.keep(tokenKey{id, strings.ToLower(owner + "/" + name), needs.String()}, m, era) {
			return m.token, nil
		}
		a.revokeOne(ctx, m.token)
	}
	return vault.Secret{}, problem.New(problem.Unavailable, "the connection is being closed, or its tokens are being renounced; try again")
}

// keep keeps a token, unless the connection was closed or its tokens renounced while it was made: then nobody would
// revoke it.
func (a *app) keep(key tokenKey, m minted, era int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.renounced != era {
		return false
	}
	if len(a.tokens) >= maxTokens {
		now := time.Now().Add(a.skew)
		maps.DeleteFunc(a.tokens, func(_ tokenKey, m minted) bool { return now.After(m.expires) })
		for k := range a.tokens {
			if len(a.tokens) < maxTokens {
				break
			}
			delete(a.tokens, k)
		}
	}
	a.tokens[key] = m
	return true
}

// installed gives the installation of an owner's repository, and whether it was known already.
func (a *app) installed(ctx context.Context, owner, name string) (id int64, known bool, err error) {
	a.mu.Lock()
	id = a.fixed
	if id == 0 {
		id = a.installation[strings.ToLower(owner)]
	}
	a.mu.Unlock()
	if id != 0 {
		return id, true, nil
	}
	var found struct {
		ID int64 `json:"id"`
	}
	status, err := a.speak(ctx, http.MethodGet, "repos/"+owner+"/"+name+"/installation", nil, &found)
	switch {
	case status == http.StatusNotFound:
		return 0, false, &refusal{Text: "the GitHub App is not installed on " + owner + "/" + name}
	case err != nil:
		return 0, false, err
	case found.ID <= 0:
		return 0, false, incomplete("installation")
	}
	a.mu.Lock()
	a.installation[strings.ToLower(owner)] = found.ID
	a.mu.Unlock()
	return found.ID, false, nil
}

// forget lets go of an owner's installation, and of the one that the credential names if that is gone.
func (a *app) forget(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = 0
	delete(a.installation, strings.ToLower(owner))
}

// close renounces what there is, and takes nothing new.
func (a *app) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.renounce()
}

// renounce ends every token that is still valid. It is a courtesy with a deadline: they expire within the hour anyway.
func (a *app) renounce() {
	a.mu.Lock()
	a.renounced++
	tokens := slices.Collect(maps.Values(a.tokens))
	clear(a.tokens)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(8)
	for _, m := range tokens {
		group.Go(func() error { a.revokeOne(ctx, m.token); return nil })
	}
	_ = group.Wait() // none gives an error
}

func (a *app) revokeOne(ctx context.Context, token vault.Secret) {
	resp, err := a.do(ctx, http.MethodDelete, "installation/token", token.Reveal(), nil)
	if err == nil {
		resp.Body.Close()
	}
}
