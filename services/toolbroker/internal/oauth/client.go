package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// Vault keeps what is sealed; *vault.Vault is one.
type Vault interface {
	Get(ctx context.Context, tenant id.Tenant, name string) (vault.Secret, error)
	Read(ctx context.Context, tenant id.Tenant, name string) (vault.Secret, uint64, error)
	Swap(ctx context.Context, tenant id.Tenant, name string, s vault.Secret, revision uint64) (uint64, error)
	Delete(ctx context.Context, tenant id.Tenant, name string, revision uint64) error
}

// Say tells that a connection's login changed. It is called again for what may not have been told; by is the actor.
type Say func(ctx context.Context, tenant id.Tenant, by string, ev connection.LoginChanged) error

// ways are the ways out; *egress.Origins is one.
type ways interface {
	To(rawURL string, private []string) (http.RoundTripper, error)
	CloseIdleConnections()
}

// Client gets, renews and revokes the tokens of all connections.
type Client struct {
	vault Vault
	say   Say
	log   *slog.Logger
	ways  ways
	now   func() time.Time
	pause time.Duration // between looks at what another broker does
	count func(outcome string)

	ctx     context.Context // of what outlives the one who asked for it
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	flights map[flightKey]*flight
}

// New makes a client. count is told of each renewal: "renewed", "refused" or "failed". Close ends the client.
func New(v Vault, say Say, count func(outcome string), log *slog.Logger) *Client {
	c := &Client{vault: v, say: say, count: count, log: log, ways: newWays(), now: time.Now, pause: 50 * time.Millisecond, flights: map[flightKey]*flight{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close waits until what is being renewed is renewed and sealed.
func (c *Client) Close() {
	c.running.Wait()
	c.stop()
	c.ways.CloseIdleConnections()
}

// Names of sealed entries. An id has no '.', so that no connection's name is another's entry.
func tokensOf(c Connection) string { return "oauth." + c.entry() }
func loginsOf(c Connection) string { return "login." + c.entry() }

func (c Connection) entry() string {
	if c.Agent == "" {
		return string(c.Connection)
	}
	return string(c.Connection) + "." + string(c.Agent)
}

// Sealed names what may be sealed for a connection beside its credential: of its own, and of agents.
func Sealed(c id.Connection, agents []id.Agent) (names []string) {
	for _, a := range append([]id.Agent{""}, agents...) {
		conn := Connection{Agent: a, Defined: connection.Defined{Connection: c}}
		names = append(names, tokensOf(conn), loginsOf(conn))
	}
	return names
}

// entry is all that is kept, sealed, of a connection's login.
type entry struct {
	URL     string           `json:"url"`   // of the connection then: tokens are for no other
	OAuth   connection.OAuth `json:"oauth"` // likewise
	Server  server           `json:"server"`
	Client  identity         `json:"client"`
	Access  string           `json:"access,omitempty"`
	Refresh string           `json:"refresh,omitempty"`
	Expires time.Time        `json:"expires,omitzero"` // of the access token; zero: not known
	Scopes  []string         `json:"scopes,omitempty"`
	Asked   []string         `json:"asked,omitempty"` // the scopes that the login asked for
	Wants   []string         `json:"wants,omitempty"` // the scopes that the provider refused a request for want of, since then
	By      id.Member        `json:"by,omitempty"`
	Attempt id.Login         `json:"attempt,omitempty"`
	Made    time.Time        `json:"made"`              // when the login was finished
	Refused string           `json:"refused,omitempty"` // why there is no token and will be none until somebody acts
	Secret  string           `json:"secret,omitempty"`  // the fingerprint of the connection's credential when it was refused
	Took    string           `json:"took,omitempty"`    // the fingerprint of the connection's credential that Server took last
	Lease   lease            `json:"lease,omitzero"`
}

// lease says that somebody is spending the entry's refresh token.
type lease struct {
	Holder string    `json:"holder,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// of says whether an entry is of the connection as it is defined now.
func (e *entry) of(c Connection) bool {
	return e.URL == c.URL && reflect.DeepEqual(e.OAuth, c.OAuth)
}

// margin is how long before its end a token is not used any more: a request takes a while.
const margin = 30 * time.Second

// usable says whether the access token may be sent. refused is one that the provider did not take.
func (e *entry) usable(refused string, now time.Time) bool {
	return e.Access != "" && e.Access != refused && (e.Expires.IsZero() || now.Add(margin).Before(e.Expires))
}

func (c *Client) read(ctx context.Context, conn Connection) (e entry, revision uint64, err error) {
	s, revision, err := c.vault.Read(ctx, conn.Tenant, tokensOf(conn))
	if problem.CodeOf(err) == problem.NotFound {
		return entry{}, 0, nil
	}
	if err != nil {
		return entry{}, 0, err
	}
	if err := json.Unmarshal([]byte(s.Reveal()), &e); err != nil {
		return entry{}, 0, problem.New(problem.Internal, "the sealed login of connection %s is damaged", conn.name()) // the cause could show it
	}
	return e, revision, nil
}

func (c *Client) write(ctx context.Context, conn Connection, e entry, revision uint64) (uint64, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return 0, problem.New(problem.Internal, "the login of connection %s cannot be written", conn.name())
	}
	return c.vault.Swap(ctx, conn.Tenant, tokensOf(conn), vault.NewSecret(string(raw)), revision)
}

// secret is the client's secret that was given with the connection.
func (c *Client) secret(ctx context.Context, conn Connection) (vault.Secret, error) {
	s, err := c.vault.Get(ctx, conn.Tenant, string(conn.Connection))
	if problem.CodeOf(err) == problem.NotFound {
		return s, problem.New(problem.Invalid, "connection %s has no credential: it needs the secret of its client", conn.name())
	}
	if err == nil && vault.Fingerprint(s) != conn.Credential { // it may be for another address
		return vault.Secret{}, problem.New(problem.Unavailable, "the credential of connection %s is being changed; if that goes on, define the connection again", conn.name())
	}
	return s, err
}

// state is what is told of an entry.
func (e *entry) state(c Connection) connection.LoginChanged {
	ev := connection.LoginChanged{Connection: c.Connection, Agent: c.Agent, URL: c.URL, OAuth: c.OAuth, State: connection.LoggedIn, Attempt: e.Attempt, By: e.By, Issuer: e.Server.Issuer, Scopes: e.Scopes}
	if e.Refused != "" {
		ev.State, ev.Reason = connection.LoginNeeded, e.Refused
	} else if len(e.Wants) > 0 {
		ev.Reason = e.lacking() // other requests still go through
	}
	return ev
}

// needs is the problem of a call that has no token: it names what helps.
func needs(c Connection, why string) error {
	if c.OAuth.Flow == connection.ClientCredentials {
		return problem.New(problem.Unauthenticated, "connection %s gets no token: %s; an admin gives it the right oauth.client_id and credential: execwarden apply -f FILE", c.name(), why)
	}
	if c.Agent != "" {
		return problem.New(problem.Unauthenticated, "agent %s has no account at connection %s: %s; an admin connects one: execwarden connections login %s --agent %s", id.Name(c.Agent), c.name(), why, c.name(), id.Name(c.Agent))
	}
	return problem.New(problem.Unauthenticated, "connection %s needs a login: %s; an admin runs: execwarden connections login %s", c.name(), why, c.name())
}

// Disconnect ends a connection's login for good: the tokens are revoked (RFC 7009) where the server lets them be, and
// what is sealed is deleted. A login of after ended, which is of a new definition, stays. It may be done again.
func (c *Client) Disconnect(ctx context.Context, conn Connection, ended time.Time) error {
	e, revision, err := c.read(ctx, conn)
	if err != nil && problem.CodeOf(err) != problem.Internal { // what cannot be read can still be deleted
		return err
	}
	if e.Made.After(ended) {
		return nil
	}
	if e.Lease.Until.After(c.now()) {
		// Deleted first: whoever renews it finds it gone, and revokes what they were given.
		if err := c.vault.Delete(ctx, conn.Tenant, tokensOf(conn), revision); err != nil {
			return err
		}
	}
	c.revoke(ctx, conn, e)
	// A crash here: the tokens are dead and still sealed; whoever hears of the removal again revokes them in vain, and
	// deletes them.
	err = errors.Join(
		c.vault.Delete(ctx, conn.Tenant, tokensOf(conn), 0),
		c.vault.Delete(ctx, conn.Tenant, loginsOf(conn), 0),
	)
	if err != nil || conn.OAuth.Flow == "" {
		return err
	}
	gone := entry{Refused: "the connection was removed"}
	if conn.Agent != "" {
		gone.Refused = "the connection or the agent was removed, or the connection has other logins now"
	}
	return c.say(ctx, conn.Tenant, "", gone.state(conn))
}

// revoke asks once for each token. A server that does not answer keeps nobody from deleting ours.
func (c *Client) revoke(ctx context.Context, conn Connection, e entry) {
	if e.Server.Revoke == "" {
		return
	}
	for kind, text := range map[string]string{"refresh_token": e.Refresh, "access_token": e.Access} {
		if text == "" {
			continue
		}
		status, _, err := c.post(ctx, conn, "revocation endpoint", e.Server.Revoke, e.Client, url.Values{"token": {text}, "token_type_hint": {kind}})
		if err == nil && status != http.StatusOK {
			err = problem.New(problem.Upstream, "the revocation endpoint answers with status %d", status)
		}
		if err != nil {
			c.log.WarnContext(ctx, "a token could not be revoked; it is deleted here, and ends when it expires", "tenant", conn.Tenant, "connection", conn.Connection, "kind", kind, "err", err)
		}
	}
}

func scope(list []string) string { return strings.Join(list, " ") }
