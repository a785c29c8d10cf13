package fakegithub

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
)

// created is when everything but comments was created.
const created = "2019-05-15T15:20:18Z"

type wireUser struct {
	Login     string `json:"login"`
	ID        int64  `json:"id"`
	URL       string `json:"url"`
	HTMLURL   string `json:"html_url"`
	Type      string `json:"type"`
	SiteAdmin bool   `json:"site_admin"`
}

type wireIssue struct {
	URL               string   `json:"url"`
	RepositoryURL     string   `json:"repository_url"`
	CommentsURL       string   `json:"comments_url"`
	HTMLURL           string   `json:"html_url"`
	ID                int64    `json:"id"`
	Number            int      `json:"number"`
	Title             string   `json:"title"`
	User              wireUser `json:"user"`
	Labels            []string `json:"labels"` // always empty here
	State             string   `json:"state"`
	Locked            bool     `json:"locked"`
	Comments          int      `json:"comments"`
	CreatedAt         string   `json:"created_at"`
	UpdatedAt         string   `json:"updated_at"`
	ClosedAt          *string  `json:"closed_at"`
	AuthorAssociation string   `json:"author_association"`
	Body              string   `json:"body"`
}

// idOf makes an id that is the same in every life of the server.
func idOf(parts ...string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.ToLower(strings.Join(parts, "/"))))
	return int64(h.Sum32())
}

func (s *Server) user(login string) wireUser {
	kind := "User"
	if strings.HasSuffix(login, "[bot]") {
		kind = "Bot"
	}
	return wireUser{login, idOf(login), s.URL() + "/users/" + login, "https://github.com/" + login, kind, false}
}

func (s *Server) getUser(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.user(s.cfg.Login))
}

// find looks the issue of a path up; names are compared as GitHub does, without regard to case.
func (s *Server) find(r *http.Request) (Issue, bool) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		return Issue{}, false
	}
	for _, i := range s.cfg.Issues {
		if strings.EqualFold(i.Owner, r.PathValue("owner")) && strings.EqualFold(i.Repo, r.PathValue("repo")) && i.Number == number {
			return i, true
		}
	}
	return Issue{}, false
}

func (s *Server) getIssue(w http.ResponseWriter, r *http.Request) {
	i, ok := s.find(r)
	if !ok {
		notFound(w)
		return
	}
	api, html := s.apiURL(i), i.htmlURL()
	writeJSON(w, http.StatusOK, wireIssue{
		URL: api, RepositoryURL: s.URL() + "/repos/" + i.Owner + "/" + i.Repo, CommentsURL: api + "/comments", HTMLURL: html,
		ID: idOf(html), Number: i.Number, Title: i.Title, Body: i.Body, User: s.user(i.Author), Labels: []string{}, State: "open",
		Locked: i.Locked, Comments: len(s.comments.of(i)), CreatedAt: created, UpdatedAt: created, AuthorAssociation: i.association(i.Author),
	})
}

func (s *Server) apiURL(i Issue) string {
	return fmt.Sprintf("%s/repos/%s/%s/issues/%d", s.URL(), i.Owner, i.Repo, i.Number)
}

func (i Issue) htmlURL() string {
	return fmt.Sprintf("https://github.com/%s/%s/issues/%d", i.Owner, i.Repo, i.Number)
}

func (i Issue) association(login string) string {
	if strings.EqualFold(i.Owner, login) {
		return "OWNER"
	}
	return "COLLABORATOR"
}

func (s *Server) getPermission(w http.ResponseWriter, r *http.Request) {
	exists := false
	for _, i := range s.cfg.Issues {
		exists = exists || strings.EqualFold(i.Owner, r.PathValue("owner")) && strings.EqualFold(i.Repo, r.PathValue("repo"))
	}
	if !exists {
		notFound(w)
		return
	}
	login := r.PathValue("user")
	permission, ok := s.cfg.Permissions[login]
	if !ok {
		permission = "read" // what GitHub says of anybody on a public repository
	}
	writeJSON(w, http.StatusOK, struct {
		Permission string   `json:"permission"`
		RoleName   string   `json:"role_name"`
		User       wireUser `json:"user"`
	}{permission, permission, s.user(login)})
}
