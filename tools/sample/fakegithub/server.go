package fakegithub

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/execwarden/execwarden/tools/sample/loopback"
)

// Config describes the server.
type Config struct {
	Token        string // what every request must bear
	Login        string // the user behind the token. Defaults to "execwarden-sample"
	CommentsFile string // keeps comments across restarts; empty: in memory only
	Port         int    // 0: any free one

	Issues []Issue // what exists. Defaults to the issue of GitHub's example payloads
	// Permissions of users by login: admin, write, read. Defaults to the owners of Issues as admins.
	Permissions map[string]string
}

// Issue is one issue, in a repository that exists because of it.
type Issue struct {
	Owner, Repo string
	Number      int
	Title, Body string
	Author      string
	Locked      bool // refuses comments
}

// Example is the issue that GitHub's example webhook payloads are about.
var Example = Issue{
	Owner: "Codertocat", Repo: "Hello-World", Number: 1, Author: "Codertocat",
	Title: "Spelling error in the README file", Body: "It looks like you accidently spelled 'commit' with two 't's.",
}

// Server is the fake. Start it; its base URL for clients is URL() with a slash.
type Server struct {
	loopback.Server
	cfg      Config
	comments *comments
	faults   faults
}

// New returns the server, with the comments of an earlier one when cfg names their file.
func New(cfg Config) (*Server, error) {
	if cfg.Login == "" {
		cfg.Login = "execwarden-sample"
	}
	if cfg.Issues == nil {
		cfg.Issues = []Issue{Example}
	}
	if cfg.Permissions == nil {
		cfg.Permissions = map[string]string{}
		for _, issue := range cfg.Issues {
			cfg.Permissions[issue.Owner] = "admin"
		}
	}
	kept, err := openComments(cfg.CommentsFile)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, comments: kept}
	s.Port = cfg.Port
	mux := http.NewServeMux()
	mux.HandleFunc("GET /user", s.getUser)
	mux.HandleFunc("GET /repos/{owner}/{repo}/issues/{number}", s.getIssue)
	mux.HandleFunc("GET /repos/{owner}/{repo}/issues/{number}/comments", s.listComments)
	mux.HandleFunc("POST /repos/{owner}/{repo}/issues/{number}/comments", s.createComment)
	mux.HandleFunc("GET /repos/{owner}/{repo}/collaborators/{user}/permission", s.getPermission)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { notFound(w) })
	s.Handler = s.authenticated(s.faults.wrap(mux))
	return s, nil
}

// Close stops the server and closes the comments' file.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), s.comments.close()) }

// Effects counts the comments that were created, in earlier lives too.
func (s *Server) Effects() int { return len(s.comments.all()) }

// Comments returns the bodies of all comments in the order in which they were created.
func (s *Server) Comments() []string {
	var bodies []string
	for _, c := range s.comments.all() {
		bodies = append(bodies, c.Body)
	}
	return bodies
}

func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		known := strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token")
		switch {
		case scheme == "":
			refuse(w, http.StatusUnauthorized, "Requires authentication")
		case !known || subtle.ConstantTimeCompare([]byte(token), []byte(s.cfg.Token)) != 1:
			refuse(w, http.StatusUnauthorized, "Bad credentials")
		default:
			w.Header().Set("X-RateLimit-Limit", "5000")
			w.Header().Set("X-RateLimit-Remaining", "4999")
			next.ServeHTTP(w, r)
		}
	})
}
