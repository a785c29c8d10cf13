package github

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/go-github/v62/github"
)

// get asks for what this version of go-github has no method for, or escapes wrongly.
func get[T any](ctx context.Context, s session, path string, query url.Values) (T, *github.Response, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return send[T](ctx, s, http.MethodGet, path, nil)
}

func send[T any](ctx context.Context, s session, method, path string, body any) (T, *github.Response, error) {
	var out T
	req, err := s.NewRequest(method, path, body)
	if err != nil {
		return out, nil, err
	}
	resp, err := s.Do(ctx, req, &out)
	return out, resp, err
}

// escaped is a path of a file as a part of a URL's.
func escaped(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// fileOrDirectory is the answer to a path: an object of a file, an array of a directory.
type fileOrDirectory struct {
	file *github.RepositoryContent
	list []*github.RepositoryContent
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *fileOrDirectory) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, &f.list)
	}
	return json.Unmarshal(raw, &f.file)
}

// pages is the part of a query that picks a page.
func pages(o github.ListOptions) url.Values {
	q := url.Values{}
	if o.Page > 0 {
		q.Set("page", strconv.Itoa(o.Page))
	}
	if o.PerPage > 0 {
		q.Set("per_page", strconv.Itoa(o.PerPage))
	}
	return q
}
