// Package github is the GitHub connection, over go-github v62 with that version's known holes closed: arguments are
// validated before a path is built from them, the final path must lie inside a repository that the grant names, and
// the credential goes to the connection's own host only.
package github

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Provider is one GitHub connection.
type Provider struct {
	client *github.Client
}

// New makes a provider of the API at base, such as https://api.github.com, with a token. transport is the way out.
func New(base string, token func(context.Context) (vault.Secret, error), transport http.RoundTripper) (*Provider, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, problem.New(problem.Invalid, "the URL of a GitHub connection is its API's, such as https://api.github.com")
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	client := github.NewClient(&http.Client{
		Transport:     &guarded{base: u, token: token, next: transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	client.BaseURL = u
	return &Provider{client: client}, nil
}

// Tools implements upstream.Provider.
func (p *Provider) Tools(context.Context) ([]connection.Tool, error) {
	out := make([]connection.Tool, 0, len(tools))
	for _, t := range tools {
		out = append(out, t.Tool)
	}
	return out, nil
}

// Call implements upstream.Provider.
func (p *Provider) Call(ctx context.Context, c upstream.Call) (upstream.Result, error) {
	t, args, err := parse(c)
	if err != nil {
		return upstream.Result{}, err
	}
	ctx, watch := upstream.Watched(ctx)
	answer, err := t.call(within(ctx, args), p.client, args, c)
	if err != nil {
		return asResult(err, t.Writes && watch.Sent())
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Internal, "GitHub's answer cannot be written")
	}
	return upstream.Result{Content: raw}, nil
}

// Probe implements upstream.Provider.
func (p *Provider) Probe(ctx context.Context, c upstream.Call) (upstream.Result, bool, error) {
	t, args, err := parse(c)
	if err != nil {
		return upstream.Result{}, false, err
	}
	if t.probe == nil {
		return upstream.Result{}, false, problem.New(problem.Internal, "%s cannot be probed", c.Tool)
	}
	answer, found, err := t.probe(within(ctx, args), p.client, args, c)
	if err != nil || !found {
		return upstream.Result{}, false, err
	}
	raw, err := json.Marshal(answer)
	return upstream.Result{Content: raw}, err == nil, err
}

// Close implements upstream.Provider.
func (p *Provider) Close() error {
	p.client.Client().CloseIdleConnections()
	return nil
}

func parse(c upstream.Call) (tool, arguments, error) {
	for _, t := range tools {
		if t.Name == c.Tool {
			args, err := parseArguments(c.Args, t.required, t.optional)
			return t, args, err
		}
	}
	return tool{}, arguments{}, problem.New(problem.NotFound, "the GitHub connection has no tool %s", c.Tool)
}

// asResult tells what GitHub said apart from what went wrong on the way. What GitHub refused had no effect and is the
// tool's own error; an answer that never came may have had one when the call writes and was sent.
func asResult(err error, mayHaveWritten bool) (upstream.Result, error) {
	var refused *github.ErrorResponse
	var limited *github.RateLimitError
	var abuse *github.AbuseRateLimitError
	switch {
	case errors.As(err, &limited), errors.As(err, &abuse):
		return toolError("GitHub's rate limit is used up; try again later")
	case errors.As(err, &refused) && refused.Response.StatusCode < 500:
		if limits(refused) {
			return toolError("GitHub's rate limit is used up; try again later")
		}
		return toolError("GitHub answered " + refused.Response.Status + ": " + refused.Message)
	case problem.CodeOf(err) == problem.Denied, problem.CodeOf(err) == problem.Invalid, problem.CodeOf(err) == problem.NotFound:
		return upstream.Result{}, err // our own guards, before anything was sent
	}
	wrapped := error(problem.Wrap(err, problem.Upstream, "GitHub did not answer the call"))
	if mayHaveWritten {
		wrapped = upstream.Ambiguously(wrapped)
	}
	return upstream.Result{}, wrapped
}

// limits says whether GitHub refused for its rate limit, of whose shapes this version of go-github knows only some.
func limits(r *github.ErrorResponse) bool {
	return r.Response.StatusCode == http.StatusTooManyRequests ||
		r.Response.StatusCode == http.StatusForbidden && (r.Response.Header.Get("Retry-After") != "" || strings.Contains(strings.ToLower(r.Message), "rate limit"))
}

func toolError(text string) (upstream.Result, error) {
	raw, err := json.Marshal(struct {
		Error string `json:"error"`
	}{text})
	return upstream.Result{Content: raw, ToolError: true}, err
}
