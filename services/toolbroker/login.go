package toolbroker

import (
	"cmp"
	"context"
	"net/url"
	"reflect"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/oauth"
)

// checkOAuth refuses what could never get a token.
func checkOAuth(def connection.Defined) error {
	o := def.OAuth
	switch {
	case o.Flow == "" && o.ClientID == "" && len(o.Scopes) == 0 && !o.PerAgent:
		return nil
	case o.PerAgent && o.Flow != connection.AuthorizationCode:
		return problem.New(problem.Invalid, "oauth.per_agent is for flow %s, in which somebody logs in", connection.AuthorizationCode)
	case def.Type != connection.MCP:
		return problem.New(problem.Invalid, "oauth is for connections of type mcp")
	case o.Flow != connection.AuthorizationCode && o.Flow != connection.ClientCredentials:
		return problem.New(problem.Invalid, "oauth.flow %.40q is not %s or %s", o.Flow, connection.AuthorizationCode, connection.ClientCredentials)
	case o.Flow == connection.ClientCredentials && o.ClientID == "":
		return problem.New(problem.Invalid, "oauth.flow %s needs an oauth.client_id", o.Flow)
	case len(o.ClientID) > 1000 || len(o.Scopes) > 50:
		return problem.New(problem.Invalid, "oauth has a client_id of over 1000 bytes, or over 50 scopes")
	}
	for _, s := range o.Scopes {
		if !oauth.IsScope(s) {
			return problem.New(problem.Invalid, "oauth.scopes: %.80q is not a scope", s)
		}
	}
	return nil
}

// sayLogin records the state of a login, if it is another than the one that was recorded last.
func (s *Service) sayLogin(ctx context.Context, tenant id.Tenant, by string, ev connection.LoginChanged) error {
	if last, ok := s.state.Login(tenant, ev.Connection, ev.Agent); ok && reflect.DeepEqual(last, ev) {
		return nil
	}
	key := string(ev.Connection)
	if ev.Agent != "" { // each is a state of its own, of which the last event counts
		key += "_" + string(ev.Agent)
	}
	_, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: ev, Tenant: tenant, Key: key, Actor: cmp.Or(by, actor)})
	return err
}

func (s *Service) beginLogin(ctx context.Context, who rpc.Caller, q ask.BeginLogin) (ask.LoginBegun, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.LoginBegun{}, problem.New(problem.Denied, "a %s may not log in to connections", who.Role)
	}
	by, err := id.Parse[id.Member](who.Actor)
	if err != nil {
		return ask.LoginBegun{}, problem.New(problem.Denied, "only a member logs in to a connection")
	}
	u, err := url.Parse(q.Redirect)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ask.LoginBegun{}, problem.New(problem.Invalid, "%.200q is not where a browser can come back to", q.Redirect)
	}
	conn, err := s.connection(ctx, who.Tenant, q.Connection, q.Agent)
	if err != nil {
		return ask.LoginBegun{}, err
	}
	return s.oauth.Begin(ctx, conn, by, q.Redirect, q.Document)
}

// lookLogin and finishLogin are asked for whoever holds the state: the tenant is the state's own.
func (s *Service) lookLogin(ctx context.Context, _ rpc.Caller, q ask.LookLogin) (ask.WaitingLogin, error) {
	conn, err := s.waiting(ctx, q.State)
	if err != nil {
		return ask.WaitingLogin{}, err
	}
	return s.oauth.Look(ctx, conn, q.State)
}

func (s *Service) finishLogin(ctx context.Context, _ rpc.Caller, q ask.FinishLogin) (ask.FinishedLogin, error) {
	conn, err := s.waiting(ctx, q.State)
	if err != nil {
		return ask.FinishedLogin{}, err
	}
	// Whoever began it may be a member no more, or one who may configure nothing.
	look, err := s.oauth.Look(ctx, conn, q.State)
	if err == nil && !s.state.Role(conn.Tenant, look.By).MayConfigure() {
		err = problem.New(problem.Denied, "%s, who began this login, may not change connections any more", look.By)
	}
	if err != nil {
		return ask.FinishedLogin{}, err
	}
	if err := s.oauth.Finish(ctx, conn, q); err != nil {
		return ask.FinishedLogin{}, err
	}
	// Read from the stream, not from what this instance has heard: another may have ended the removed connection's login
	// just before this one was sealed.
	last, err := s.deps.Log.Last(ctx, schemas.Control, schemas.SubjectOf(conn.Tenant, connection.Defined{}.Kind(), string(conn.Connection), "").String())
	if err != nil {
		return ask.FinishedLogin{}, err
	}
	if def, err := eventlog.Decode[connection.Defined](last); err == nil && def.Removed {
		gone := problem.New(problem.NotFound, "connection %s was removed while the login was finished; the login is ended", id.Name(conn.Connection))
		return ask.FinishedLogin{}, cmp.Or(s.oauth.Disconnect(ctx, conn, s.now()), error(gone))
	}
	if conn.Agent == "" {
		s.lists.soon(connectionKey{conn.Tenant, conn.Connection})
	}
	return ask.FinishedLogin{Connection: conn.Connection}, nil
}

func (s *Service) waiting(ctx context.Context, state string) (oauth.Connection, error) {
	tenant, c, a, err := oauth.At(state)
	if err != nil {
		return oauth.Connection{}, err
	}
	return s.connection(ctx, tenant, c, a)
}

// connection gives a connection as it is defined now: whoever defined it a moment ago may ask before this instance has
// heard of it. For an agent it is one on which each has a login of its own, and the agent is there.
func (s *Service) connection(ctx context.Context, tenant id.Tenant, c id.Connection, a id.Agent) (oauth.Connection, error) {
	at, err := s.deps.Log.Last(ctx, schemas.Control, schemas.SubjectOf(tenant, connection.Defined{}.Kind(), string(c), "").String())
	if err == nil {
		err = s.view.Wait(ctx, at.Seq)
	}
	if err != nil && problem.CodeOf(err) != problem.NotFound {
		return oauth.Connection{}, err
	}
	def, ok := s.state.Connection(tenant, id.Name(c))
	if !ok {
		return oauth.Connection{}, problem.New(problem.NotFound, "there is no connection %s", id.Name(c))
	}
	if a != "" {
		if known := s.state.Known(tenant, a, ""); known.Agent == nil || known.Agent.Removed {
			return oauth.Connection{}, problem.New(problem.NotFound, "there is no agent %s", id.Name(a))
		}
		if !def.OAuth.PerAgent {
			return oauth.Connection{}, problem.New(problem.Invalid, "connection %s has one login for all agents; set oauth.per_agent for one of each", id.Name(c))
		}
	}
	return oauth.Connection{Tenant: tenant, Agent: a, Defined: def}, nil
}

// endLoginsSoon ends logins when an agent or a connection changed, and now and then, since a server may not have answered.
func (s *Service) endLoginsSoon(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.RelistEvery)
	defer ticker.Stop()
	for {
		s.endLogins(ctx)
		select {
		case <-ctx.Done():
			return
		case <-s.logins:
		case <-ticker.C:
		}
	}
}

// doubtLogins has logins looked at. It never waits.
func (s *Service) doubtLogins() {
	select {
	case s.logins <- struct{}{}:
	default: // they will be anyway
	}
}

// endLogins ends the logins of agents that are no more, or on connections that have one for all by now.
func (s *Service) endLogins(ctx context.Context) {
	for _, l := range s.state.AgentLogins() {
		if ctx.Err() != nil {
			return
		}
		known := s.state.Known(l.Tenant, l.Agent, "")
		def, ok := s.state.Connection(l.Tenant, id.Name(l.Connection))
		if !ok || def.OAuth.PerAgent && known.Agent != nil && !known.Agent.Removed {
			continue // those of a connection that was removed end with it
		}
		if err := s.oauth.Disconnect(ctx, oauth.Connection{Tenant: l.Tenant, Agent: l.Agent, Defined: def}, s.now()); err != nil {
			s.log.WarnContext(ctx, "an agent's login is not ended yet", "tenant", l.Tenant, "connection", l.Connection, "agent", l.Agent, "err", err)
		}
	}
}

// disconnect ends what a removed connection could still do: its tokens are revoked, and everything that was sealed for
// it is deleted. It is heard again until that is done. A connection that was defined anew since keeps what is its own.
func (s *Service) disconnect(ctx context.Context, h bus.Heard, def connection.Defined) error {
	if err := s.view.Wait(ctx, h.Seq); err != nil {
		return err
	}
	if err := s.oauth.Disconnect(ctx, oauth.Connection{Tenant: h.At.Tenant, Defined: def}, h.Envelope.Time); err != nil {
		return err
	}
	for _, l := range s.state.AgentLogins() {
		if l.Tenant != h.At.Tenant || l.Connection != def.Connection {
			continue
		}
		if err := s.oauth.Disconnect(ctx, oauth.Connection{Tenant: l.Tenant, Agent: l.Agent, Defined: def}, h.Envelope.Time); err != nil {
			return err
		}
	}
	sealed, revision, err := s.vault.Read(ctx, h.At.Tenant, string(def.Connection))
	if problem.CodeOf(err) == problem.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	used := def.Credential
	now, again := s.state.Connection(h.At.Tenant, id.Name(def.Connection))
	if again {
		used = now.Credential
	}
	// A removed connection's own credential goes, and so does one that the new definition does not use. Another than the
	// removed one's, with no new definition yet, is of one that is on its way.
	if again == (vault.Fingerprint(sealed) == used) {
		return nil
	}
	err = s.vault.Delete(ctx, h.At.Tenant, string(def.Connection), revision)
	if problem.CodeOf(err) == problem.Conflict {
		return nil // likewise
	}
	return err
}
