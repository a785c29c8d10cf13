package mcp

//lint:file-ignore SA1019 logging is to leave the protocol in 2027; the clients of today ask for it

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/hints"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
)

// Routes of the endpoint: of all connections, each tool's name with its connection's in front, and of one, without.
const (
	Path           = "/mcp"
	ConnectionPath = "/mcp/c/{connection}"
)

// maxBody is the largest message of a client, in bytes: arguments of a call may be as large as any event's body.
const maxBody = 4 << 20

// modern is the first version of the protocol without sessions.
const modern = "2026-07-28"

// Endpoint serves MCP.
type Endpoint struct {
	Gate    *auth.Gate
	Site    *edge.Site
	State   *control.State
	Conn    *bus.Conn
	Log     *eventlog.Log
	Version string
	Note    *slog.Logger
	Limits  Limits
	// Covers says whether a token for a resource is one for a path of the endpoint.
	Covers func(resource, path string) bool

	ear      *hints.Ear
	news     *news
	watches  *watches
	asking   chan struct{} // held by whoever asks the broker about a subscription that stands
	sessions *sessions
	stateful *mcp.StreamableHTTPHandler
	without  *mcp.StreamableHTTPHandler
}

// Limits bound what agents may have under way.
type Limits struct {
	AtOnce      int           // calls of one agent at this instance, with what it asks the broker otherwise
	Rate        int           // the same per second, over a while, at this instance; 0: as many as it likes
	Burst       int           // calls that it may make at once before that counts
	Sessions    int           // of one agent at this instance
	SessionIdle time.Duration // after which a session is closed
	CallLife    time.Duration // in which a call has to be decided
	HeldWait    time.Duration // how long an answer waits for an approval, where the client cannot be told otherwise
	TaskAfter   time.Duration // after which a call is answered with a task, where the client takes one
}

// Open begins to hear of calls. stop ends every session.
func (e *Endpoint) Open() (stop func(), err error) {
	e.ear, e.news, e.sessions = hints.New(e.Conn), newNews(), newSessions()
	e.watches, e.asking = newWatches(), make(chan struct{}, asksAtOnce)
	deaf, err := e.ear.Listen()
	if err != nil {
		return nil, err
	}
	quiet, err := e.news.listen(e.Conn)
	if err != nil {
		deaf()
		return nil, err
	}
	still, err := e.hearUpdates()
	if err != nil {
		quiet()
		deaf()
		return nil, err
	}
	e.sessions.apart(e.renew)
	store := mcp.NewMemoryEventStore(nil)
	store.SetMaxBytes(64 << 20)
	e.stateful = mcp.NewStreamableHTTPHandler(e.server, &mcp.StreamableHTTPOptions{SessionTimeout: e.Limits.SessionIdle, EventStore: store,
		Logger: e.Note, DisableLocalhostProtection: true}) // the edge checks hosts
	e.without = mcp.NewStreamableHTTPHandler(e.server, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true,
		Logger: e.Note, DisableLocalhostProtection: true})
	return func() {
		e.sessions.close()
		still()
		quiet()
		deaf()
	}, nil
}

// Register adds the routes.
func (e *Endpoint) Register(mux *http.ServeMux) {
	mux.Handle(Path, e)
	mux.Handle(ConnectionPath, e)
}

// visit is one HTTP request.
type visit struct {
	who        auth.Agent
	connection string        // the one that is served; empty: all
	talk       *conversation // that the request is of; nil: it may begin one
	begun      *conversation // that it begins
}

type visitKey struct{}

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{connection: r.PathValue("connection")}
	err := e.Site.CheckPage(r)
	if err == nil {
		v.who, err = e.Gate.IdentifyAgent(r)
	}
	if err == nil && v.who.Resource != "" && !e.Covers(v.who.Resource, r.URL.Path) {
		err = problem.New(problem.Unauthenticated, "the access token is for %.200s, and not for this endpoint", v.who.Resource)
	}
	if err == nil && v.connection != "" {
		name, invalid := id.Named[id.Connection](v.connection)
		if _, ok := e.State.Connection(v.who.Tenant, name); invalid != nil || !ok {
			err = problem.New(problem.NotFound, "there is no connection %.60q", v.connection)
		}
	}
	var body []byte
	if err == nil && r.Method == http.MethodPost {
		body, err = edge.Body(w, r, maxBody)
	}
	sessionless := isModern(r, body)
	if err == nil {
		if given := r.Header.Get("Mcp-Session-Id"); given != "" && !sessionless {
			if v.talk = e.sessions.find(given); v.talk == nil || v.talk.who.Token != v.who.Token || v.talk.connection != v.connection {
				// The protocol's word for it: the client begins a new one.
				err = problem.New(problem.NotFound, "there is no such session of this token")
			}
		}
	}
	if err != nil {
		if problem.CodeOf(err) == problem.Unauthenticated {
			w.Header().Set("WWW-Authenticate", e.challenge(r))
		}
		problem.WriteHTTP(w, err)
		return
	}
	r.Body = http.NoBody
	if body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	r, expired := expiring(r.WithContext(context.WithValue(r.Context(), visitKey{}, v)), sessionless, v.who)
	defer expired()
	w, unhurried := hurried(w)
	defer unhurried()
	if sessionless {
		if refusedAtEdge(w, r, body) {
			return
		}
		c, leave := e.sessions.without(v.who, v.connection, e.serve)
		defer leave()
		if v.talk = c; !e.holds(v.who) { // it was revoked before this was there to be ended
			c.over()
		}
		e.without.ServeHTTP(w, r)
		return
	}
	markTask(r, body)
	e.stateful.ServeHTTP(w, r)
}

// isModern says whether a request is of the protocol without sessions: by its header, or where that is missing by what the
// message itself says, so that the answer is that of the right protocol.
func isModern(r *http.Request, body []byte) bool {
	if version := r.Header.Get("Mcp-Protocol-Version"); version != "" {
		return version >= modern
	}
	if !bytes.Contains(body, []byte(mcp.MetaKeyProtocolVersion)) {
		return false
	}
	var m struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil {
		return false
	}
	var version string
	_ = json.Unmarshal(m.Params.Meta[mcp.MetaKeyProtocolVersion], &version) // what is no text is no version
	return version >= modern
}

// server gives the SDK the server of a request: that of its session, or a new one.
func (e *Endpoint) server(r *http.Request) *mcp.Server {
	v, ok := r.Context().Value(visitKey{}).(*visit)
	if !ok {
		return nil
	}
	if v.talk != nil {
		return v.talk.server
	}
	if v.begun == nil {
		v.begun = e.sessions.begin(v.who, v.connection)
		e.serve(v.begun)
	}
	return v.begun.server
}

// serve makes the MCP server of one conversation. It has nothing of its own: every request is answered by answer.
func (e *Endpoint) serve(c *conversation) {
	var extensions map[string]any
	if c.session == "" {
		extensions = map[string]any{tasksExtension: struct{}{}}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "execwarden", Title: "ExecWarden", Version: e.Version}, &mcp.ServerOptions{
		Logger: e.Note, SchemaCache: schemaCache, GetSessionID: c.sessionID,
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
			Prompts: &mcp.PromptCapabilities{ListChanged: true}, Completions: &mcp.CompletionCapabilities{}, Logging: &mcp.LoggingCapabilities{},
			Extensions: extensions,
		},
		// The SDK keeps which stream is told of which resource. Whether it may be was decided before; see subscribe and listen.
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.CacheScope = private
		},
	})
	offerTasks(s, c)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			return e.answer(ctx, c, method, r, next)
		}
	})
	c.server = s
}

var schemaCache = mcp.NewSchemaCache()

// private is the cache scope of everything: it is what one agent may see.
const private = "private"

// challenge tells a client that has no token, or one that does not hold, where it gets one (RFC 9728, section 5.1).
func (e *Endpoint) challenge(r *http.Request) string {
	out := `Bearer resource_metadata="` + e.Site.URL("/.well-known/oauth-protected-resource"+r.URL.Path, nil) + `", scope="mcp"`
	if r.Header.Get("Authorization") != "" {
		out += `, error="invalid_token"` // RFC 6750, section 3.1: not for who sent none
	}
	return out
}

// served says whether a connection's tools are in a conversation.
func (c *conversation) served(name string) bool { return c.connection == "" || c.connection == name }
