package fakegithub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-github/v62/github"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "ghs_sample"

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Token = token
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func client(t *testing.T, s *Server, token string) *github.Client {
	t.Helper()
	c := github.NewClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	if token != "" {
		c = c.WithAuthToken(token)
	}
	base, err := url.Parse(s.URL() + "/")
	if err != nil {
		t.Fatal(err)
	}
	c.BaseURL = base
	return c
}

func comment1(ctx context.Context, c *github.Client, body string) (*github.IssueComment, error) {
	got, _, err := c.Issues.CreateComment(ctx, "Codertocat", "Hello-World", 1, &github.IssueComment{Body: &body})
	return got, err
}

func wantStatus(t *testing.T, err error, status int, message string) {
	t.Helper()
	var refused *github.ErrorResponse
	if !errors.As(err, &refused) || refused.Response.StatusCode != status || refused.Message != message {
		t.Errorf("err = %v, want %d %s", err, status, message)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	c := client(t, start(t, Config{}), token)
	ctx := t.Context()

	me, _, err := c.Users.Get(ctx, "")
	if err != nil || me.GetLogin() != "execwarden-sample" || me.GetID() == 0 {
		t.Errorf("user %v, %v", me, err)
	}
	issue, _, err := c.Issues.Get(ctx, "codertocat", "hello-world", 1)
	if err != nil || issue.GetTitle() != Example.Title || issue.GetState() != "open" || issue.GetUser().GetLogin() != "Codertocat" || issue.GetCreatedAt().IsZero() {
		t.Errorf("issue %v, %v", issue, err)
	}
	for user, want := range map[string]string{"Codertocat": "admin", "stranger": "read"} {
		level, _, err := c.Repositories.GetPermissionLevel(ctx, "Codertocat", "Hello-World", user)
		if err != nil || level.GetPermission() != want || level.GetUser().GetLogin() != user {
			t.Errorf("%s: %v, %v", user, level, err)
		}
	}
	_, _, err = c.Issues.Get(ctx, "Codertocat", "Hello-World", 2)
	wantStatus(t, err, 404, "Not Found")
	_, _, err = c.Repositories.GetPermissionLevel(ctx, "Codertocat", "Other", "Codertocat")
	wantStatus(t, err, 404, "Not Found")
	_, _, err = c.Repositories.Get(ctx, "Codertocat", "Hello-World")
	wantStatus(t, err, 404, "Not Found") // an endpoint that is not faked
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	for given, message := range map[string]string{"": "Requires authentication", "wrong": "Bad credentials", token + "x": "Bad credentials"} {
		_, err := comment1(t.Context(), client(t, s, given), "hi")
		wantStatus(t, err, 401, message)
	}
	if s.Effects() != 0 {
		t.Errorf("%d effects without a token", s.Effects())
	}
}

func TestCommentsArePaged(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	c := client(t, s, token)
	for i := range 7 {
		got, err := comment1(t.Context(), c, fmt.Sprint("comment ", i))
		if err != nil || got.GetBody() != fmt.Sprint("comment ", i) || got.GetID() == 0 || got.GetCreatedAt().IsZero() {
			t.Fatalf("%v, %v", got, err)
		}
	}
	var bodies []string
	opts := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 3}}
	for {
		list, resp, err := c.Issues.ListComments(t.Context(), "Codertocat", "Hello-World", 1, opts)
		if err != nil || resp.LastPage != 3 && resp.NextPage != 0 {
			t.Fatalf("%+v, %v", resp, err)
		}
		for _, one := range list {
			bodies = append(bodies, one.GetBody())
		}
		if resp.NextPage == 0 {
			break
		}
		opts.Page = resp.NextPage
	}
	if len(bodies) != 7 || bodies[6] != "comment 6" || s.Effects() != 7 {
		t.Errorf("%v, %d effects", bodies, s.Effects())
	}
	for _, page := range []int{4, 1 << 40, -1} {
		list, _, err := c.Issues.ListComments(t.Context(), "Codertocat", "Hello-World", 1, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{Page: page, PerPage: 1000}})
		if err != nil || (page > 1) != (len(list) == 0) {
			t.Errorf("page %d: %d comments, %v", page, len(list), err)
		}
	}
}

func TestCommentRefusals(t *testing.T) {
	t.Parallel()
	locked := Example
	locked.Number, locked.Locked = 2, true
	s := start(t, Config{Issues: []Issue{Example, locked}})
	c := client(t, s, token)
	for body, want := range map[string]string{"": "missing_field", " \n": "missing_field", strings.Repeat("é", 65537): "unprocessable"} {
		_, err := comment1(t.Context(), c, body)
		wantStatus(t, err, 422, "Validation Failed")
		var refused *github.ErrorResponse
		if errors.As(err, &refused) && (len(refused.Errors) != 1 || refused.Errors[0].Code != want) {
			t.Errorf("errors %v", refused.Errors)
		}
	}
	body := "hi"
	_, _, err := c.Issues.CreateComment(t.Context(), "Codertocat", "Hello-World", 2, &github.IssueComment{Body: &body})
	wantStatus(t, err, 403, "Unable to create comment because issue is locked.")

	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/repos/Codertocat/Hello-World/issues/1/comments", strings.NewReader("{"))
	req.Header.Set("Authorization", "token "+token)
	resp, err := c.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(raw), "Problems parsing JSON") {
		t.Errorf("%s %s", resp.Status, raw)
	}
	if s.Effects() != 0 {
		t.Errorf("%d effects", s.Effects())
	}
}

func TestCommentsSurvive(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "comments.jsonl")
	first := start(t, Config{CommentsFile: file})
	for _, body := range []string{"one", "two\nlines"} {
		if _, err := comment1(t.Context(), client(t, first, token), body); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// A server that was killed while it wrote leaves a part of a line.
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"repo":"Codertocat/Hello-World","num`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	second := start(t, Config{CommentsFile: file})
	if _, err := comment1(t.Context(), client(t, second, token), "three"); err != nil {
		t.Fatal(err)
	}
	if got := second.Comments(); len(got) != 3 || got[1] != "two\nlines" || got[2] != "three" {
		t.Errorf("comments %q", got)
	}
	if err := os.WriteFile(file, []byte("not a comment\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{CommentsFile: file}); err == nil {
		t.Error("a file of something else is taken")
	}
}

// Each failure comes before and after the effect; the caller sees the same, and only the count tells.
func TestFaultPairs(t *testing.T) {
	t.Parallel()
	for after, effects := range map[bool]int{false: 0, true: 1} {
		s := start(t, Config{})
		s.Inject(Fault{Method: http.MethodPost, Status: 502, AfterEffect: after})
		_, err := comment1(t.Context(), client(t, s, token), "hi")
		wantStatus(t, err, 502, "injected fault")
		if s.Effects() != effects {
			t.Errorf("status, after %v: %d effects", after, s.Effects())
		}

		s = start(t, Config{})
		s.Inject(Fault{Method: http.MethodPost, Abort: true, AfterEffect: after})
		if _, err := comment1(t.Context(), client(t, s, token), "hi"); err == nil || s.Effects() != effects {
			t.Errorf("abort, after %v: %d effects, %v", after, s.Effects(), err)
		}

		s = start(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		s.Inject(Fault{Method: http.MethodPost, Until: make(chan struct{}), Reached: cancel, AfterEffect: after})
		if _, err := comment1(ctx, client(t, s, token), "hi"); !errors.Is(err, context.Canceled) {
			t.Errorf("given up, after %v: %v", after, err)
		}
		if err := s.Close(); err != nil || s.Effects() != effects {
			t.Errorf("given up, after %v: %d effects, %v", after, s.Effects(), err)
		}
	}
}

func TestFaultsEnd(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	c := client(t, s, token)
	s.Inject(Fault{Method: http.MethodPost, Times: 2, Status: 429, Header: http.Header{"retry-after": {"7"}}})
	for range 2 {
		_, err := comment1(t.Context(), c, "hi")
		var refused *github.ErrorResponse
		if !errors.As(err, &refused) || refused.Response.Header.Get("Retry-After") != "7" {
			t.Errorf("err = %v", err)
		}
	}
	reached, release := make(chan struct{}), make(chan struct{})
	s.Inject(Fault{Method: http.MethodPost, Reached: func() { close(reached) }, Until: release, AfterEffect: true})
	go func() { <-reached; close(release) }()
	if got, err := comment1(t.Context(), c, "late"); err != nil || got.GetBody() != "late" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := comment1(t.Context(), c, "free"); err != nil || s.Effects() != 2 {
		t.Errorf("%d effects, %v", s.Effects(), err)
	}
}
