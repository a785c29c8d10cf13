package github

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// lentTools are what the connection lends to the git tools of machines. Grants on them are grants like others.
func lentTools() []connection.Tool {
	return []connection.Tool{
		{Name: machine.LentFetch, Lent: true, Effect: connection.Pure, Schema: schemaOf(inRepo(), nil),
			Description: "Clone or fetch a repository onto a machine, by machine.git_clone and machine.git_fetch. All of the repository is read."},
		{Name: machine.LentPush, Lent: true, Effect: connection.Opaque, Writes: true,
			Schema:      schemaOf(inRepo(branch.told("the one that is pushed")), []param{{name: "commit", schema: aText, about: "that it becomes; empty: any"}, {name: "force", schema: aBool}}),
			Description: "Push to one branch of a repository from a machine, by machine.git_push."},
	}
}

// GitURL is where the git server of an API is, unless given says so: https://github.com of https://api.github.com, and the
// server itself of https://github.example.com/api/v3.
func GitURL(api, given string) (*url.URL, error) {
	text := given
	if text == "" {
		text = api
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, problem.New(problem.Invalid, "git_url %.200q is no http(s) URL", text)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if given == "" {
		u.Host = strings.TrimPrefix(u.Host, "api.")
		u.Path = strings.TrimSuffix(u.Path, "/api/v3")
	}
	return u, nil
}

// maxSaid is how much of a refusal's text is read, in bytes.
const maxSaid = 4 << 10

var oneName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Lend implements upstream.Lender.
func (p *Provider) Lend(ctx context.Context, l upstream.Lent) (*http.Response, error) {
	if !oneName.MatchString(l.Owner) || !oneName.MatchString(l.Name) || climbs("/"+l.Owner+"/"+l.Name) {
		return nil, problem.New(problem.Invalid, "%.100q is no repository", l.Owner+"/"+l.Name)
	}
	s := &scope{repo: l.Owner + "/" + l.Name, needs: permissions{"contents": "read"}}
	if l.Writes {
		s.needs = permissions{"contents": "write"}
	}
	token, err := p.credentials.token(ctx, s, "")
	if err != nil {
		return nil, upstream.Harmlessly(err)
	}
	resp, err := p.lend(ctx, l, token.Reveal())
	if err == nil && resp.StatusCode == http.StatusUnauthorized && l.Refs {
		fresh, tokenErr := p.credentials.token(ctx, s, token.Reveal())
		if tokenErr == nil && fresh.Reveal() != token.Reveal() {
			resp.Body.Close()
			resp, err = p.lend(ctx, l, fresh.Reveal())
		}
	}
	if err != nil {
		return nil, err
	}
	if err := answered(resp, l); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

func (p *Provider) lend(ctx context.Context, l upstream.Lent, token string) (*http.Response, error) {
	to := *p.git
	to.Path += "/" + l.Owner + "/" + l.Name + ".git/"
	method := http.MethodPost
	if l.Refs {
		method = http.MethodGet
		to.Path += "info/refs"
		to.RawQuery = "service=" + l.Service()
	} else {
		to.Path += l.Service()
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), l.Body)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the git server's address is none")
	}
	if !l.Refs {
		req.Header.Set("Content-Type", "application/x-"+l.Service()+"-request")
		req.Header.Set("Accept", "application/x-"+l.Service()+"-result")
	}
	if l.Protocol != "" {
		req.Header.Set("Git-Protocol", l.Protocol)
	}
	req.Header.Set("User-Agent", "git/2 (ExecWarden)")
	req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token)))
	return p.gitOut.RoundTrip(req) // it leads to the git server only, and follows no redirect
}

// answered says what is wrong with a git server's answer.
func answered(resp *http.Response, l upstream.Lent) error {
	repo := l.Owner + "/" + l.Name
	kind := "-result"
	if l.Refs {
		kind = "-advertisement"
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK && resp.Header.Get("Content-Type") == "application/x-"+l.Service()+kind:
		return nil
	case code == http.StatusOK:
		return problem.New(problem.Upstream, "the git server does not answer as one: it sent %.60q", resp.Header.Get("Content-Type"))
	case code >= 300 && code < 400:
		return problem.New(problem.Denied, "the git server sends elsewhere for %s, which is not followed; was the repository renamed or moved?", repo)
	case code == http.StatusUnauthorized:
		return problem.New(problem.Denied, "the git server does not take the connection's credential")
	case code == http.StatusNotFound:
		return problem.New(problem.NotFound, "the git server has no repository %s, or the connection's credential may not see it", repo)
	default:
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) // what came of it is told
		sort := problem.Upstream
		if code == http.StatusForbidden {
			sort = problem.Denied
		}
		return problem.New(sort, "the git server answered %d for %s: %.300s", code, repo, strings.TrimSpace(strings.ToValidUTF8(string(said), "?")))
	}
}

var _ upstream.Lender = (*Provider)(nil)
