package toolbroker

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
	"github.com/execwarden/execwarden/services/toolbroker/internal/oauth"
	"github.com/execwarden/execwarden/services/toolbroker/internal/stdio"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// providers keeps the provider of each connection, made as its definition says.
type providers struct {
	credential func(context.Context, id.Tenant, connection.Defined) (vault.Secret, error)
	defined    func(id.Tenant, string) (connection.Defined, bool) // by name, as it is now
	packaged   func(id.Tenant, id.Connection) (connection.Packaged, bool)
	programs   stdio.Programs
	log        *slog.Logger
	changed    func(connectionKey) // the connection says that its tools changed
	guard      func(connectionKey, upstream.Provider) upstream.Provider
	ways       *egress.Origins
	gitWays    *egress.Origins // to git servers, whose answers are as large as repositories
	oauth      *oauth.Client   // set before the first provider is made
	updated    func(watchKey)  // a resource changed; the same

	mu      sync.Mutex
	open    map[providerKey]opened
	closing sync.WaitGroup
}

type connectionKey struct {
	tenant     id.Tenant
	connection id.Connection
}

// providerKey tells providers apart: where each agent has a login of its own, each has a provider of its own.
type providerKey struct {
	connectionKey
	agent id.Agent
}

type opened struct {
	def    connection.Defined
	digest string // of the API package, for a connection that has one
	upstream.Provider
}

func newProviders(credential func(context.Context, id.Tenant, connection.Defined) (vault.Secret, error), defined func(id.Tenant, string) (connection.Defined, bool),
	packaged func(id.Tenant, id.Connection) (connection.Packaged, bool), guard func(connectionKey, upstream.Provider) upstream.Provider, changed func(connectionKey), programs stdio.Programs, log *slog.Logger) *providers {
	return &providers{
		credential: credential, defined: defined, packaged: packaged, guard: guard, changed: changed, programs: programs, log: log,
		ways:    egress.NewOrigins(egress.Rule{Methods: []string{"*"}, MaxBytes: 16 << 20, Timeout: -1, MaxRedirects: -1}),
		gitWays: egress.NewOrigins(egress.Rule{Methods: []string{http.MethodGet, http.MethodPost}, MaxBytes: -1, Timeout: -1, MaxRedirects: -1}),
		open:    map[providerKey]opened{},
	}
}

// provider gives the provider of a connection as it is defined now for an agent's calls, or for none's, and that definition. One that was made for an
// earlier definition is closed, which ends the calls that still run over it.
func (p *providers) provider(tenant id.Tenant, c id.Connection, a id.Agent) (upstream.Provider, connection.Defined, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Looked up only now: whoever knew an earlier definition would put its provider in the place of the one that is in
	// use, and that of a removed connection would never be let go of. drop comes after the removal can be seen here.
	def, ok := p.defined(tenant, id.Name(c))
	if !ok {
		return nil, def, problem.New(problem.NotFound, "connection %s is no more", id.Name(c))
	}
	if !def.OAuth.PerAgent {
		a = ""
	}
	key := providerKey{connectionKey{tenant, c}, a}
	pkg, _ := p.packaged(tenant, c)
	if o, ok := p.open[key]; ok {
		if reflect.DeepEqual(o.def, def) && o.digest == pkg.Digest {
			return o.Provider, def, nil
		}
		delete(p.open, key)
		// Closing asks the server, which may take its time: not at the cost of everybody's calls. It is not used any
		// more, whatever it says.
		p.closing.Go(func() { _ = o.Close() })
	}
	made, err := p.make(tenant, a, def, pkg)
	if err != nil {
		return nil, def, err
	}
	guarded := p.guard(key.connectionKey, made)
	p.open[key] = opened{def, pkg.Digest, guarded}
	return guarded, def, nil
}

func (p *providers) make(tenant id.Tenant, a id.Agent, def connection.Defined, pkg connection.Packaged) (upstream.Provider, error) {
	if strings.HasPrefix(def.URL, stdio.Scheme) {
		return p.program(tenant, def)
	}
	way, err := p.ways.To(def.URL, def.Private)
	if err != nil {
		return nil, err
	}
	token := func(ctx context.Context) (vault.Secret, error) { return p.reveal(ctx, tenant, def) }
	switch def.Type {
	case connection.GitHub:
		files, err := filesOf(def)
		if err != nil {
			return nil, err
		}
		git, err := github.GitURL(def.URL, def.GitURL)
		if err != nil {
			return nil, err
		}
		gitWay, err := p.gitWays.To(git.String(), def.Private)
		if err != nil {
			return nil, err
		}
		return github.New(github.Config{URL: def.URL, GitURL: def.GitURL, Credential: token, Transport: way, Git: gitWay, Files: files})
	case connection.MCP:
		client := &http.Client{Transport: way}
		switch {
		case def.OAuth.Flow != "":
			client.Transport = oauth.Transport{Client: p.oauth, Connection: oauth.Connection{Tenant: tenant, Agent: a, Defined: def}, Next: way}
		case def.Credential != "":
			client.Transport = bearer{token, way}
		}
		provider := mcp.New(def.URL, client)
		of := providerKey{connectionKey{tenant, def.Connection}, a}
		provider.Watching(func(uri string) { p.updated(watchKey{of, uri}) })
		if a == "" {
			provider.Listen(func() { p.changed(connectionKey{tenant, def.Connection}) })
		}
		return provider, nil
	case connection.API:
		if pkg.Digest == "" {
			return nil, problem.New(problem.NotFound, "connection %s has no package yet", id.Name(def.Connection))
		}
		compiled, err := apipackage.Unmarshal(pkg.Body.Package)
		if err != nil {
			return nil, err
		}
		return apipackage.New(compiled, token, way)
	}
	return nil, problem.New(problem.Invalid, "this broker does not know connections of type %q", def.Type)
}

// reveal gives a connection's credential. That it cannot be had now is no fault of the provider, which was not asked.
func (p *providers) reveal(ctx context.Context, tenant id.Tenant, def connection.Defined) (vault.Secret, error) {
	s, err := p.credential(ctx, tenant, def)
	if err != nil {
		return s, upstream.Harmlessly(err)
	}
	return s, nil
}

// program makes the provider of a connection that is a program beside the broker.
func (p *providers) program(tenant id.Tenant, def connection.Defined) (upstream.Provider, error) {
	program, err := p.programs.Find(tenant, def.URL)
	if err != nil {
		return nil, err
	}
	start := func(ctx context.Context) (mcp.Program, error) {
		var credential vault.Secret
		var err error
		if def.Credential != "" && program.CredentialEnv != "" {
			if credential, err = p.reveal(ctx, tenant, def); err != nil {
				return nil, err
			}
		}
		return stdio.Start(program, credential, p.log.With("tenant", tenant, "connection", def.Connection))
	}
	return mcp.NewProgram(start, func() { p.changed(connectionKey{tenant, def.Connection}) }), nil
}

// filesOf is the way out to the hosts that a provider keeps files on, nil when the connection allows none. It only
// reads, follows no redirect, and nothing adds a credential to it.
func filesOf(def connection.Defined) (http.RoundTripper, error) {
	if len(def.Hosts) == 0 {
		return nil, nil
	}
	return egress.New(egress.Rule{Hosts: def.Hosts, AllowPrivate: def.Private, MaxBytes: 65 << 20, Timeout: -1, MaxRedirects: -1})
}

// drop lets go of the provider of a connection that is no more, which ends the calls that still run over it.
func (p *providers) drop(tenant id.Tenant, c id.Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, o := range p.open {
		if key.connectionKey != (connectionKey{tenant, c}) {
			continue
		}
		delete(p.open, key)
		p.closing.Go(func() { _ = o.Close() }) // it is not used any more, whatever it says
	}
}

// unwatch has a provider tell no more of a resource, if it is open.
func (p *providers) unwatch(key watchKey) {
	p.mu.Lock()
	o := p.open[key.providerKey]
	p.mu.Unlock()
	if w, ok := o.Provider.(upstream.Watcher); ok {
		w.Unwatch(key.uri)
	}
}

// renounce gives up the credentials that were made for a tenant's calls. It asks the providers, and waits for nobody.
func (p *providers) renounce(tenant id.Tenant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, o := range p.open {
		if r, ok := o.Provider.(upstream.Renouncer); ok && k.tenant == tenant {
			p.closing.Go(r.Renounce)
		}
	}
}

func (p *providers) close() {
	p.mu.Lock()
	for k, o := range p.open {
		p.closing.Go(func() { _ = o.Close() }) // the process is ending
		delete(p.open, k)
	}
	p.mu.Unlock()
	p.closing.Wait()
	p.ways.CloseIdleConnections()
	p.gitWays.CloseIdleConnections()
}

// bearer adds a connection's credential to each request. The way out behind it leads to the connection's own origin
// only, and follows no redirect.
type bearer struct {
	token func(context.Context) (vault.Secret, error)
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	return b.next.RoundTrip(r)
}
