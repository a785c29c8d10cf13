package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of logins that wait for a browser.
const (
	loginLife  = 10 * time.Minute
	maxWaiting = 8 // per connection; the oldest makes room
)

// waiting is a login that was begun, sealed until the browser comes back. State is a hash: the state itself is in the
// browser only.
type waiting struct {
	Attempt  id.Login         `json:"attempt"`
	State    string           `json:"state"`
	Verifier string           `json:"verifier"`
	Redirect string           `json:"redirect"`
	By       id.Member        `json:"by"`
	Expires  time.Time        `json:"expires"`
	URL      string           `json:"url"`
	OAuth    connection.OAuth `json:"oauth"`
	Server   server           `json:"server"`
	Client   identity         `json:"client"`
	Scopes   []string         `json:"scopes,omitempty"`
}

// Begin prepares a login for a member, and gives the URL at which they log in. document is where the metadata of this client are, for
// servers that know clients by such; empty: nowhere.
func (c *Client) Begin(ctx context.Context, conn Connection, by id.Member, redirect, document string) (ask.LoginBegun, error) {
	if conn.OAuth.Flow != connection.AuthorizationCode {
		return ask.LoginBegun{}, problem.New(problem.Invalid, "nobody logs in to connection %s: its oauth.flow is not %s", conn.name(), connection.AuthorizationCode)
	}
	s, err := c.discover(ctx, conn)
	if err != nil {
		return ask.LoginBegun{}, err
	}
	switch {
	case s.Authorize == "":
		return ask.LoginBegun{}, problem.New(problem.Upstream, "the authorization server of connection %s has no authorization endpoint", conn.name())
	case !s.S256:
		return ask.LoginBegun{}, problem.New(problem.Upstream, "the authorization server of connection %s does not say that it supports PKCE with S256, without which a code that leaks is a login", conn.name())
	}
	before, _, err := c.read(ctx, conn)
	if err != nil {
		return ask.LoginBegun{}, err
	}
	who, err := c.identify(ctx, conn, before, s, redirect, document)
	if err != nil {
		return ask.LoginBegun{}, err
	}
	scopes := scopesOf(conn, before, s)
	// The tenant, the connection and the agent are found by it; 256 random bits make it a secret.
	state := strings.Join([]string{string(conn.Tenant), conn.entry(), rand.Text() + rand.Text()}, ".")
	w := waiting{Attempt: id.Derive[id.Login](state), State: hash(state), Verifier: oauth2.GenerateVerifier(), Redirect: redirect, By: by,
		Expires: c.now().Add(loginLife).UTC(), URL: conn.URL, OAuth: conn.OAuth, Server: s, Client: who, Scopes: scopes}
	if err := c.change(ctx, conn, func(all []waiting) ([]waiting, error) {
		all = append(all, w)
		return all[max(0, len(all)-maxWaiting):], nil
	}); err != nil {
		return ask.LoginBegun{}, err
	}
	cfg := oauth2.Config{ClientID: who.ID, RedirectURL: redirect, Scopes: scopes, Endpoint: oauth2.Endpoint{AuthURL: s.Authorize}}
	at := cfg.AuthCodeURL(state, oauth2.S256ChallengeOption(w.Verifier), oauth2.SetAuthURLParam("resource", s.Resource))
	return ask.LoginBegun{Attempt: w.Attempt, URL: at, ExpiresAt: w.Expires}, nil
}

// identify gives the client that a login is made as: the one that was given, the one that was registered here before,
// or a new one. Where none is registered it is the one of the document. That is the last choice: a server that cannot reach the document says
// so to a person's browser, and nobody here hears it.
func (c *Client) identify(ctx context.Context, conn Connection, e entry, s server, redirect, document string) (identity, error) {
	if conn.OAuth.ClientID != "" {
		return identity{ID: conn.OAuth.ClientID, Method: s.method(conn.Credential != "")}, nil
	}
	known := func(issuer, at string, who identity) bool {
		return issuer == s.Issuer && at == redirect && who.ID != "" && (who.Expires.IsZero() || c.now().Add(loginLife).Before(who.Expires))
	}
	if e.of(conn) && e.Refused == "" && known(e.Server.Issuer, redirect, e.Client) {
		return e.Client, nil
	}
	all, _, err := c.waiting(ctx, conn)
	if err != nil {
		return identity{}, err
	}
	for _, w := range all {
		if known(w.Server.Issuer, w.Redirect, w.Client) {
			return w.Client, nil
		}
	}
	if s.Register == "" && s.Documents && document != "" {
		return identity{ID: document, Method: methodNone}, nil
	}
	return c.register(ctx, conn, s, redirect)
}

// At finds the tenant, the connection and the agent that a state is of. It proves nothing yet.
func At(state string) (tenant id.Tenant, con id.Connection, a id.Agent, err error) {
	parts := strings.Split(state, ".")
	if len(state) > 500 || len(parts) != 3 && len(parts) != 4 {
		return "", "", "", stale()
	}
	tenant, err = id.Parse[id.Tenant](parts[0])
	con, err2 := id.Parse[id.Connection](parts[1])
	var err3 error
	if len(parts) == 4 {
		a, err3 = id.Parse[id.Agent](parts[2])
	}
	if err != nil || err2 != nil || err3 != nil {
		return "", "", "", stale()
	}
	return tenant, con, a, nil
}

// Look says which login a state is of, and uses nothing up.
func (c *Client) Look(ctx context.Context, conn Connection, state string) (ask.WaitingLogin, error) {
	all, _, err := c.waiting(ctx, conn)
	if err != nil {
		return ask.WaitingLogin{}, err
	}
	i := find(all, state)
	if i < 0 {
		return ask.WaitingLogin{}, stale()
	}
	return ask.WaitingLogin{Connection: conn.Connection, Agent: conn.Agent, URL: conn.URL, Issuer: all[i].Server.Issuer, By: all[i].By}, nil
}

// Finish turns what the browser came back with into tokens. The state is used up first: of two who bring it, one gets
// further, and a code is never tried twice.
func (c *Client) Finish(ctx context.Context, conn Connection, q ask.FinishLogin) error {
	var w waiting
	err := c.change(ctx, conn, func(all []waiting) ([]waiting, error) {
		i := find(all, q.State)
		if i < 0 {
			return nil, stale()
		}
		w = all[i]
		return slices.Delete(all, i, i+1), nil
	})
	if err != nil {
		return err
	}
	// A crash from here until the tokens are sealed ends this attempt, and leaves the login that was there before.
	before, got, err := c.exchange(ctx, conn, w, q)
	if err != nil {
		ev := before.state(conn)
		if !before.of(conn) {
			ev.State = connection.LoginNeeded
		}
		ev.Attempt, ev.Failed, ev.Reason = w.Attempt, true, problem.DetailOf(err).Message
		if told := c.say(ctx, conn.Tenant, string(w.By), ev); told != nil {
			c.log.WarnContext(ctx, "a failed login is not recorded", "connection", conn.Connection, "err", told)
		}
		return err
	}
	e := entry{URL: w.URL, OAuth: w.OAuth, Server: w.Server, Client: w.Client, Scopes: w.Scopes, Asked: w.Scopes, By: w.By, Attempt: w.Attempt, Made: c.now().UTC()}
	e.take(got)
	for {
		_, revision, err := c.read(ctx, conn)
		if err == nil {
			_, err = c.write(ctx, conn, e, revision) // in place of whatever is there: a renewal under way finds out, and leaves it
		}
		if problem.CodeOf(err) == problem.Conflict || problem.CodeOf(err) == problem.Unavailable && sleep(ctx, 4*c.pause) == nil {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	// A crash here: calls use the tokens; that they are there is told when the first of them is renewed.
	return c.say(ctx, conn.Tenant, string(w.By), e.state(conn))
}

// exchange checks what came back and trades the code. before is the entry that was there.
func (c *Client) exchange(ctx context.Context, conn Connection, w waiting, q ask.FinishLogin) (before entry, got tokens, err error) {
	if before, _, err = c.read(ctx, conn); err != nil {
		return before, got, err
	}
	switch at := (entry{URL: w.URL, OAuth: w.OAuth}); {
	case !at.of(conn):
		return before, got, problem.New(problem.Conflict, "connection %s is defined otherwise than when the login began; begin it again", conn.name())
	case q.Issuer == "" && w.Server.SendsIss, q.Issuer != "" && q.Issuer != w.Server.Issuer:
		// RFC 9207 section 2.4: the answer is another server's, which would be given this one's code.
		return before, got, problem.New(problem.Denied, "the answer does not come from the authorization server that was asked, %.200s", w.Server.Issuer)
	case q.Error != "":
		return before, got, problem.New(problem.Denied, "the authorization server says %s", word(q.Error))
	case q.Code == "" || len(q.Code) > maxToken:
		return before, got, problem.New(problem.Invalid, "the answer holds no code")
	}
	got, err = c.ask(ctx, conn, w.Server, w.Client, url.Values{"grant_type": {"authorization_code"}, "code": {q.Code}, "redirect_uri": {w.Redirect}, "code_verifier": {w.Verifier}})
	var no *refusal
	if errors.As(err, &no) {
		err = problem.New(problem.Denied, "the code is not taken: %s", no.Error())
	}
	return before, got, err
}

func stale() error {
	return problem.New(problem.Expired, "this login was finished already, or was begun more than %d minutes ago; begin it again: execwarden connections login NAME", int(loginLife.Minutes()))
}

// waiting reads the logins that wait and have not expired.
func (c *Client) waiting(ctx context.Context, conn Connection) (all []waiting, revision uint64, err error) {
	s, revision, err := c.vault.Read(ctx, conn.Tenant, loginsOf(conn))
	if problem.CodeOf(err) == problem.NotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if json.Unmarshal([]byte(s.Reveal()), &all) != nil {
		return nil, 0, problem.New(problem.Internal, "the sealed logins of connection %s are damaged", conn.name())
	}
	return slices.DeleteFunc(all, func(w waiting) bool { return !c.now().Before(w.Expires) }), revision, nil
}

// change changes the logins that wait, by compare-and-swap.
func (c *Client) change(ctx context.Context, conn Connection, to func([]waiting) ([]waiting, error)) error {
	for {
		all, revision, err := c.waiting(ctx, conn)
		if err != nil {
			return err
		}
		if all, err = to(all); err != nil {
			return err
		}
		raw, err := json.Marshal(all)
		if err != nil {
			return problem.New(problem.Internal, "the logins of connection %s cannot be written", conn.name())
		}
		_, err = c.vault.Swap(ctx, conn.Tenant, loginsOf(conn), vault.NewSecret(string(raw)), revision)
		if problem.CodeOf(err) != problem.Conflict {
			return err
		}
	}
}

func find(all []waiting, state string) int {
	want := hash(state)
	return slices.IndexFunc(all, func(w waiting) bool { return w.State == want })
}

func hash(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}
