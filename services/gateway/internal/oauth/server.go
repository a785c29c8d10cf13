package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
)

// Peers is what the server needs of the other services: to know when a change is heard.
type Peers interface {
	Seen(ctx context.Context, seq uint64)
	InForceAmong(ctx context.Context, who auth.Identity, seq uint64, services ...schemas.Service) (ask.InForce, error)
}

// Members says whether an agent's token holds now.
type Members interface {
	Agent(id.Tenant, id.Agent, id.Token) error
}

// Server is the authorization server.
type Server struct {
	Site      *edge.Site
	State     *control.State
	People    *auth.People
	Members   Members
	Peers     Peers
	Log       *eventlog.Log
	Note      *slog.Logger
	Documents *Documents
	// Expect is told of each access token that is given out; the gate will see it soon.
	Expect func(vault.Secret)
	// Issuers are authorization servers that clients are sent to before us. Clients take the first.
	Issuers []string
}

// Routes. The authorization endpoint is a page of the console.
const (
	AuthorizePath = "/oauth/authorize"
	CallbackPath  = "/oauth/callback" // likewise
	tokenPath     = "/oauth/token"
	revokePath    = "/oauth/revoke"
	documentPath  = "/oauth/client.json"
)

// maxForm is the largest request, in bytes.
const maxForm = 32 << 10

// Register adds the routes that programs ask.
func (s *Server) Register(mux *http.ServeMux) {
	s.describe(mux)
	mux.HandleFunc("POST "+tokenPath, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.token) })
	mux.HandleFunc("POST "+revokePath, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.revoke) })
}

// fault is an error in OAuth's words (RFC 6749, sections 4.1.2.1 and 5.2). The message is ours and holds nothing that was sent.
type fault struct {
	code string
	why  *problem.Error
}

func (f *fault) Error() string { return f.code + ": " + f.why.Error() }

// Unwrap lets the problem be found.
func (f *fault) Unwrap() error { return f.why }

func refuse(code, format string, args ...any) error {
	kind := problem.Invalid
	switch code {
	case invalidClient, invalidGrant:
		kind = problem.Unauthenticated
	case accessDenied, unauthorizedClient:
		kind = problem.Denied
	}
	return &fault{code, problem.New(kind, format, args...)}
}

// The words of OAuth's errors that are used.
const (
	invalidRequest     = "invalid_request"
	invalidClient      = "invalid_client"
	invalidGrant       = "invalid_grant"
	invalidScope       = "invalid_scope"
	invalidTarget      = "invalid_target" // RFC 8707
	unauthorizedClient = "unauthorized_client"
	unsupportedGrant   = "unsupported_grant_type"
	unsupportedAnswer  = "unsupported_response_type"
	accessDenied       = "access_denied"
)

// serve answers one request of a program. Problems that are not of OAuth's say that trying later may help, or that it is ours.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(*http.Request, url.Values) (any, error)) {
	q, err := readForm(w, r)
	var out any
	if err == nil {
		out, err = answer(r, q)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if err != nil {
		d := problem.DetailOf(err)
		code := "server_error"
		var f *fault
		switch {
		case errors.As(err, &f):
			code, status = f.code, http.StatusBadRequest
		case d.Code == problem.Busy || d.Code == problem.Unavailable || d.Code == problem.AuditUnavailable || d.Code == problem.Pending || d.Code == problem.Timeout:
			code, status = "temporarily_unavailable", http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "1")
		case d.Code == problem.TooLarge:
			code, status = invalidRequest, d.Code.Status()
		case d.Code == problem.Unauthenticated:
			code, status = invalidGrant, http.StatusBadRequest
		case d.Code == problem.Invalid:
			code, status = invalidRequest, http.StatusBadRequest
		default:
			status = http.StatusInternalServerError
			s.Note.ErrorContext(r.Context(), "oauth", "path", r.URL.Path, "err", err)
		}
		if code == invalidClient {
			status = http.StatusUnauthorized
			w.Header().Set("WWW-Authenticate", "Basic")
		}
		out = map[string]string{"error": code, "error_description": d.Message}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		raw, status = []byte(`{"error":"server_error"}`), http.StatusInternalServerError
	}
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the client is gone if this fails
}

// readForm reads a posted form. What is in the URL does not count: URLs are written down in many places.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(invalidRequest, "parameters are in the body, not in the URL")
	}
	if kind, _, ok := cutType(r.Header.Get("Content-Type")); !ok || kind != "application/x-www-form-urlencoded" {
		return nil, refuse(invalidRequest, "send a form, application/x-www-form-urlencoded")
	}
	body, err := edge.Body(w, r, maxForm)
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, refuse(invalidRequest, "the form cannot be read")
	}
	return q, single(q)
}

// single refuses a parameter that is given twice (RFC 6749, section 3.1): who reads the first and who reads the last would not
// mean the same request.
func single(q url.Values) error {
	for name, values := range q {
		if len(values) > 1 {
			return refuse(invalidRequest, "parameter %.40q is given more than once", name)
		}
	}
	return nil
}

// end revokes a login, and returns when it is refused everywhere, or nobody can tell. Saying it again adds nothing.
func (s *Server) end(ctx context.Context, tenant id.Tenant, by string, login token.Revoked) error {
	if k, known := s.State.Token(tenant, login.Token); known && k.Revoked {
		return nil
	}
	seq, err := s.Log.Append(ctx, eventlog.Draft{Tenant: tenant, Key: string(login.Token), Actor: by, Event: login,
		ID: id.Derive[id.Event](string(tenant), string(login.Token), login.Kind(), "ended")})
	if err != nil {
		return err
	}
	_, err = s.Peers.InForceAmong(ctx, auth.Identity{Tenant: tenant, Member: id.Member(by)}, seq, schemas.Gateway)
	return err
}

// actor is the gateway itself.
const actor = "service:" + string(schemas.Gateway)

func now() time.Time { return time.Now() }
