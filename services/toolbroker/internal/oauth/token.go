package oauth

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// leaseLife is how long one broker may take to renew a token: discovery, the request, and sealing what came. Its own
// work ends leaseMargin earlier, so that it never spends a refresh token that somebody else may be spending too; the
// clocks of two brokers may be apart by that much.
const (
	leaseLife   = 40 * time.Second
	leaseMargin = 5 * time.Second
)

// Token gives a token that may be sent now, renewed if it has to be. refused is one that the provider just did not take,
// or nothing. Problems: unauthenticated (somebody has to act, and the message says how), unavailable, upstream_error.
func (c *Client) Token(ctx context.Context, conn Connection, refused string) (vault.Secret, error) {
	e, _, err := c.read(ctx, conn)
	if err != nil {
		return vault.Secret{}, err
	}
	if e.of(conn) && e.usable(refused, c.now()) {
		return vault.NewSecret(e.Access), nil
	}
	return c.shared(ctx, conn, refused)
}

type flightKey struct {
	tenant     id.Tenant
	name       id.Connection
	agent      id.Agent
	definition string // in full: a token is for no other URL, though it be of the same connection
	refused    string
}

// flight is one renewal that several wait for.
type flight struct {
	done  chan struct{}
	token vault.Secret
	err   error
}

// shared renews once for all who ask at this broker. The renewal goes on when they have left: a refresh token that is
// spent and whose answer nobody takes would be lost.
func (c *Client) shared(ctx context.Context, conn Connection, refused string) (vault.Secret, error) {
	definition, err := json.Marshal(conn.Defined)
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Internal, "the definition of connection %s cannot be written", conn.name())
	}
	key := flightKey{conn.Tenant, conn.Connection, conn.Agent, string(definition), refused}
	c.mu.Lock()
	f, ok := c.flights[key]
	if !ok {
		f = &flight{done: make(chan struct{})}
		c.flights[key] = f
		c.running.Go(func() {
			within, cancel := context.WithTimeout(c.ctx, leaseLife)
			defer cancel()
			f.token, f.err = c.renew(within, conn, refused)
			c.mu.Lock()
			delete(c.flights, key)
			c.mu.Unlock()
			close(f.done)
		})
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return vault.Secret{}, ctx.Err()
	}
}

// renew gets a new token, or the one that another broker got meanwhile.
func (c *Client) renew(ctx context.Context, conn Connection, refused string) (vault.Secret, error) {
	for {
		e, revision, err := c.read(ctx, conn)
		if err != nil {
			return vault.Secret{}, err
		}
		if !e.of(conn) {
			if conn.OAuth.Flow != connection.ClientCredentials {
				return vault.Secret{}, needs(conn, "nobody has logged in yet")
			}
			e = entry{URL: conn.URL, OAuth: conn.OAuth, Client: identity{ID: conn.OAuth.ClientID}, Made: c.now().UTC()}
		}
		switch {
		case e.Refused != "" && e.Secret == conn.Credential:
			c.tell(ctx, conn, e) // whoever found it out may have crashed before it said so
			return vault.Secret{}, needs(conn, e.Refused)
		case e.usable(refused, c.now()):
			return vault.NewSecret(e.Access), nil
		case e.Lease.Until.After(c.now()):
			if err := sleep(ctx, c.pause); err != nil {
				return vault.Secret{}, problem.Wrap(err, problem.Unavailable, "the token of connection %s is being renewed, and that takes too long", conn.name())
			}
			continue
		case conn.OAuth.Flow != connection.ClientCredentials && e.Refresh == "":
			e.refuse(conn, "the token ended, and there is none to renew it with")
			if err := c.settle(ctx, conn, e, revision, ""); problem.CodeOf(err) == problem.Conflict {
				continue
			} else if err != nil {
				return vault.Secret{}, err
			}
			return vault.Secret{}, needs(conn, e.Refused)
		}
		e.Lease = lease{Holder: rand.Text(), Until: c.now().Add(leaseLife)}
		taken, err := c.write(ctx, conn, e, revision)
		if problem.CodeOf(err) == problem.Conflict {
			continue // another broker was faster
		}
		if err != nil {
			// It may have been kept all the same. Then nobody holds it, and it lapses.
			return vault.Secret{}, err
		}
		token, err := c.spend(ctx, conn, e, taken)
		if problem.CodeOf(err) == problem.Conflict {
			continue // a login, or the end of the connection, came in between, and counts
		}
		return token, err
	}
}

// spend uses the refresh token, under a lease that nobody else has: a server that rotates them takes each once, and one
// that is spent twice ends the login (NangoHQ/nango#1005).
func (c *Client) spend(ctx context.Context, conn Connection, e entry, revision uint64) (vault.Secret, error) {
	holder := e.Lease.Holder
	asking, cancel := context.WithTimeout(ctx, leaseLife-leaseMargin)
	defer cancel()
	got, err := c.again(asking, conn, &e)
	// A crash here, after the token endpoint answered and before the answer is sealed: the new tokens are lost and the
	// old refresh token may be spent. The lease lapses, and the next who needs a token tries the old one once more. That
	// can do no harm that is not done: a server that does not rotate, or never got the request, answers; any other
	// refuses, and a member has to log in, as they would without the attempt.
	var no *refusal
	switch {
	case errors.As(err, &no):
		c.count("refused")
		e.refuse(conn, no.Error())
		if err := c.settle(ctx, conn, e, revision, holder); err != nil {
			return vault.Secret{}, err
		}
		return vault.Secret{}, needs(conn, e.Refused)
	case err != nil:
		c.count("failed")
		e.Lease = lease{}
		if _, failed := c.write(ctx, conn, e, revision); failed != nil {
			c.log.WarnContext(ctx, "a lease on a token is not given back; it lapses", "tenant", conn.Tenant, "connection", conn.Connection, "err", failed)
		}
		return vault.Secret{}, err
	}
	c.count("renewed")
	e.take(got)
	e.Took = conn.Credential
	if err := c.settle(ctx, conn, e, revision, holder); err != nil {
		if problem.CodeOf(err) == problem.Conflict {
			c.revoke(ctx, conn, e) // nobody will use these
		}
		return vault.Secret{}, err
	}
	return vault.NewSecret(e.Access), nil
}

// again asks for a token in the connection's way.
func (c *Client) again(ctx context.Context, conn Connection, e *entry) (tokens, error) {
	if conn.OAuth.Flow == connection.AuthorizationCode {
		return c.ask(ctx, conn, e.Server, e.Client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {e.Refresh}})
	}
	// Where to ask may have changed, and there is no person whose login would end by that.
	found, err := c.discover(ctx, conn)
	if err != nil {
		return tokens{}, err
	}
	if e.Took == conn.Credential && e.Took != "" && found.Issuer != e.Server.Issuer {
		// The provider says which server that is. What one server takes must not be sent to any other that it names.
		return tokens{}, &refusal{fmt.Sprintf("its MCP server names another authorization server, %.200q, than the one that took its secret, %.200q", found.Issuer, e.Server.Issuer)}
	}
	e.Server, e.Client.Method = found, found.method(true)
	form := url.Values{"grant_type": {"client_credentials"}}
	if e.Scopes = conn.OAuth.Scopes; e.Scopes == nil {
		e.Scopes = found.Scopes
	}
	if len(e.Scopes) > 0 {
		form.Set("scope", scope(e.Scopes))
	}
	return c.ask(ctx, conn, found, e.Client, form)
}

// take puts new tokens in. A server that gives no new refresh token means the old one to be used again.
func (e *entry) take(t tokens) {
	e.Access, e.Expires, e.Lease, e.Refused, e.Secret = t.access, t.expires, lease{}, "", ""
	if t.refresh != "" {
		e.Refresh = t.refresh
	}
	if t.scopes != nil {
		e.Scopes = t.scopes
	}
}

// refuse notes that there is no token until somebody acts. Another credential is such an act.
func (e *entry) refuse(conn Connection, why string) {
	e.Access, e.Refresh, e.Expires, e.Lease, e.Refused, e.Secret = "", "", time.Time{}, lease{}, why, conn.Credential
}

// settle seals an entry in place of the one that holder has, and tells of it. The vault may be away for a moment, and what
// is lost here is a login: it is tried until the context ends.
func (c *Client) settle(ctx context.Context, conn Connection, e entry, revision uint64, holder string) error {
	for {
		_, err := c.write(ctx, conn, e, revision)
		if err == nil {
			break
		}
		if code := problem.CodeOf(err); code != problem.Conflict && code != problem.Unavailable {
			return err
		}
		at, now, failed := c.read(ctx, conn)
		switch {
		case failed == nil && at.Access == e.Access && at.Refused == e.Refused && at.Lease == (lease{}) && at.Made.Equal(e.Made):
			// It was kept after all.
		case failed == nil && holder != "" && at.Lease.Holder == holder:
			revision = now // the same entry, sealed anew because keys were rotated
			continue
		case failed == nil && now != revision:
			return problem.Wrap(err, problem.Conflict, "the login of connection %s is another by now", conn.name())
		case sleep(ctx, 4*c.pause) == nil:
			continue
		default:
			return err
		}
		break
	}
	// A crash here leaves what is told behind what is sealed, until the next who needs a token tells it.
	c.tell(ctx, conn, e)
	return nil
}

// tell says what an entry comes to. It is told again at the next use when it cannot be told now.
func (c *Client) tell(ctx context.Context, conn Connection, e entry) {
	if err := c.say(ctx, conn.Tenant, "", e.state(conn)); err != nil {
		c.log.WarnContext(ctx, "the state of a login is not recorded yet", "tenant", conn.Tenant, "connection", conn.Connection, "err", err)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
