// Package internalapi is the sample's internal API "tickets": who owns a component, and a tracker, behind a real MCP
// server over Streamable HTTP.
package internalapi

import (
	"crypto/subtle"
	"net/http"

	"github.com/execwarden/execwarden/tools/sample/loopback"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Server serves the API. Start it; clients speak MCP at URL().
type Server struct {
	loopback.Server
	tickets tracker
}

// New returns the server. A token, unless it is empty, is what every request must bear.
func New(token string) *Server {
	s := &Server{tickets: tracker{byKey: map[string]ticket{}}}
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Title: "Example Inc. tickets", Version: "1.0.0"}, nil)
	closed := false
	mcp.AddTool(server, &mcp.Tool{
		Name:        "find_owner",
		Description: "Finds the team that owns a component, and the person on call.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &closed},
	}, findOwner)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "create_ticket",
		Description: "Opens a ticket for a component. The same idempotencyKey opens it once.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &closed, IdempotentHint: true, OpenWorldHint: &closed},
	}, s.tickets.create)

	// Without sessions nothing is left behind when a client is killed.
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	s.Handler = bearing(token, handler)
	return s
}

// Effects counts the tickets that were opened.
func (s *Server) Effects() int { return s.tickets.count() }

func bearing(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="tickets"`)
			http.Error(w, "a valid bearer token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
