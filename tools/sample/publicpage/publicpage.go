// Package publicpage is a status page as companies publish them: a page for people at / and the same in JSON at
// /status.json. The sample's agent fetches it from a script.
package publicpage

import (
	"encoding/json"
	"html/template"
	"net/http"
	"sync/atomic"

	"github.com/execwarden/execwarden/tools/sample/loopback"
)

// Status is what the page tells.
type Status struct {
	Page       string      `json:"page"`
	Components []Component `json:"components"`
}

// Component is a part of the product. Keywords are the words by which people call it.
type Component struct {
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Keywords []string `json:"keywords"`
}

// Example is the status of the sample.
var Example = Status{
	Page: "Example Inc. status",
	Components: []Component{
		{"api", "operational", []string{"api", "endpoint", "token"}},
		{"documentation", "operational", []string{"readme", "docs", "spelling", "typo"}},
		{"website", "degraded", []string{"website", "page", "login"}},
	},
}

// Server serves a Status.
type Server struct {
	loopback.Server
	hits atomic.Int64
}

// New returns a server for status; Start it.
func New(status Status) *Server {
	s := &Server{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, status) // the client is gone if this fails
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status)
	})
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		mux.ServeHTTP(w, r)
	})
	return s
}

// Hits counts the requests so far.
func (s *Server) Hits() int { return int(s.hits.Load()) }

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{{.Page}}</title>
<h1>{{.Page}}</h1>
<table>
{{- range .Components}}
<tr><td>{{.Name}}</td><td>{{.Status}}</td></tr>
{{- end}}
</table>
</html>
`))
