package fakegithub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

type wireComment struct {
	URL               string   `json:"url"`
	HTMLURL           string   `json:"html_url"`
	IssueURL          string   `json:"issue_url"`
	ID                int64    `json:"id"`
	User              wireUser `json:"user"`
	CreatedAt         string   `json:"created_at"`
	UpdatedAt         string   `json:"updated_at"`
	AuthorAssociation string   `json:"author_association"`
	Body              string   `json:"body"`
}

func (s *Server) wire(i Issue, c comment) wireComment {
	return wireComment{
		URL:      fmt.Sprintf("%s/repos/%s/%s/issues/comments/%d", s.URL(), i.Owner, i.Repo, c.ID),
		HTMLURL:  fmt.Sprintf("%s#issuecomment-%d", i.htmlURL(), c.ID),
		IssueURL: s.apiURL(i), ID: c.ID, User: s.user(c.Author), CreatedAt: c.CreatedAt, UpdatedAt: c.CreatedAt,
		AuthorAssociation: i.association(c.Author), Body: c.Body,
	}
}

const (
	commentRunes = 65536
	bodyBytes    = 1 << 20
)

func (s *Server) createComment(w http.ResponseWriter, r *http.Request) {
	i, ok := s.find(r)
	if !ok {
		notFound(w)
		return
	}
	var draft struct {
		Body *string `json:"body"`
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
	if err != nil || json.Unmarshal(raw, &draft) != nil {
		refuse(w, http.StatusBadRequest, "Problems parsing JSON")
		return
	}
	if i.Locked {
		refuse(w, http.StatusForbidden, "Unable to create comment because issue is locked.")
		return
	}
	switch {
	case draft.Body == nil || strings.TrimSpace(*draft.Body) == "":
		refuse(w, http.StatusUnprocessableEntity, "Validation Failed", fieldError{Resource: "IssueComment", Code: "missing_field", Field: "body"})
		return
	case utf8.RuneCountInString(*draft.Body) > commentRunes:
		refuse(w, http.StatusUnprocessableEntity, "Validation Failed", fieldError{"IssueComment", "unprocessable", "body", "body is too long (maximum is 65536 characters)"})
		return
	}
	c, err := s.comments.add(i, s.cfg.Login, *draft.Body)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "Server Error")
		return
	}
	// The comment is on disk: a crash from here on loses the answer, and never the effect.
	out := s.wire(i, c)
	w.Header().Set("Location", out.URL)
	writeJSON(w, http.StatusCreated, out)
}

func (s *Server) listComments(w http.ResponseWriter, r *http.Request) {
	i, ok := s.find(r)
	if !ok {
		notFound(w)
		return
	}
	all := s.comments.of(i)
	p := pageOf(r, len(all))
	if link := p.link(s.apiURL(i) + "/comments"); link != "" {
		w.Header().Set("Link", link)
	}
	out := []wireComment{}
	for _, c := range all[p.from:p.to] {
		out = append(out, s.wire(i, c))
	}
	writeJSON(w, http.StatusOK, out)
}

// page is one page of a list, from page 1 to last.
type page struct {
	number, last, size int
	from, to           int
}

func pageOf(r *http.Request, total int) page {
	positive := func(name string, def int) int {
		if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil && n > 0 {
			return n
		}
		return def
	}
	p := page{number: positive("page", 1), size: min(positive("per_page", 30), 100)}
	p.last = max(1, (total+p.size-1)/p.size)
	if p.number > p.last {
		p.from, p.to = total, total // an empty page, as GitHub has it
		return p
	}
	p.from = (p.number - 1) * p.size
	p.to = min(p.from+p.size, total)
	return p
}

// link is the Link header: next and last before the last page, first and prev after the first.
func (p page) link(url string) string {
	var links []string
	add := func(rel string, n int) {
		links = append(links, fmt.Sprintf(`<%s?page=%d&per_page=%d>; rel="%s"`, url, n, p.size, rel))
	}
	if p.number > 1 {
		add("prev", min(p.number-1, p.last))
	}
	if p.number < p.last {
		add("next", p.number+1)
		add("last", p.last)
	}
	if p.number > 1 {
		add("first", 1)
	}
	return strings.Join(links, ", ")
}
