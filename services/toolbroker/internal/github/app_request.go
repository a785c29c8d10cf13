package github

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// request asks for a token for one repository and some permissions, both named.
func (a *app) request(ctx context.Context, installation int64, name string, needs permissions) (minted, int, error) {
	body := struct {
		Repositories []string    `json:"repositories"` // without omitempty, and checked: left out it means all
		Permissions  permissions `json:"permissions"`
	}{[]string{name}, needs}
	if name == "" || len(needs) == 0 || installation <= 0 {
		return minted{}, 0, problem.New(problem.Internal, "a token for everything was about to be asked for")
	}
	var got struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	status, err := a.speak(ctx, http.MethodPost, fmt.Sprintf("app/installations/%d/access_tokens", installation), body, &got)
	switch {
	case status == http.StatusUnprocessableEntity:
		err = &refusal{Text: "the GitHub App may not have a token for repository " + name + " with " + strings.TrimSpace(needs.String()) + ": give its installation the repository and these permissions"}
	case err == nil && (got.Token == "" || got.ExpiresAt.IsZero()):
		err = incomplete("token")
	}
	if err != nil {
		return minted{}, status, err
	}
	return minted{vault.NewSecret(got.Token), got.ExpiresAt}, status, nil
}

// identity is what GitHub knows of the App.
func (a *app) identity(ctx context.Context) (me, error) {
	var got struct {
		ID    int64  `json:"id"`
		Slug  string `json:"slug"`
		Name  string `json:"name"`
		Owner struct {
			Login string `json:"login"`
		} `json:"owner"`
	}
	if _, err := a.speak(ctx, http.MethodGet, "app", nil, &got); err != nil {
		return me{}, err
	}
	return me{Login: got.Slug + "[bot]", ID: got.ID, Name: got.Name, Type: "App", Owner: got.Owner.Login}, nil
}

// speak makes a request as the App itself. When GitHub's clock and ours disagree by too much for its token, it is asked
// again by GitHub's.
func (a *app) speak(ctx context.Context, method, path string, body, into any) (int, error) {
	status, date, err := a.once(ctx, method, path, body, into)
	if status != http.StatusUnauthorized || date.IsZero() {
		return status, err
	}
	skew := time.Until(date)
	a.mu.Lock()
	differs := (skew - a.skew).Abs() > 20*time.Second
	if differs {
		a.skew = skew
	}
	a.mu.Unlock()
	if differs {
		status, _, err = a.once(ctx, method, path, body, into)
	}
	return status, err
}

func (a *app) once(ctx context.Context, method, path string, body, into any) (int, time.Time, error) {
	a.mu.Lock()
	now := time.Now().Add(a.skew)
	a.mu.Unlock()
	token, err := signJWT(a.key, a.issuer, now)
	if err != nil {
		return 0, time.Time{}, err
	}
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, time.Time{}, err
		}
		in = bytes.NewReader(raw)
	}
	resp, err := a.do(ctx, method, path, token, in)
	if err != nil {
		return 0, time.Time{}, problem.Wrap(err, problem.Upstream, "GitHub does not answer the App")
	}
	defer resp.Body.Close()
	date, _ := http.ParseTime(resp.Header.Get("Date")) // zero without one
	limit, err := limitOf(resp)
	if err != nil {
		return resp.StatusCode, date, err
	}
	if limit != nil {
		return resp.StatusCode, date, limit
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return resp.StatusCode, date, problem.Wrap(err, problem.Upstream, "GitHub's answer to the App cannot be read")
	}
	if resp.StatusCode >= 300 {
		var said struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(raw, &said) // the status says enough
		text := strings.TrimSuffix("GitHub refused the App: "+resp.Status+": "+clip(said.Message, 300), ": ")
		if resp.StatusCode >= 500 {
			return resp.StatusCode, date, problem.New(problem.Upstream, "%s", text)
		}
		return resp.StatusCode, date, &refusal{Text: text}
	}
	if err := json.Unmarshal(raw, into); err != nil { // the cause could show a token
		return resp.StatusCode, date, problem.New(problem.Upstream, "GitHub's answer to the App is not what it should be")
	}
	return resp.StatusCode, date, nil
}

// do makes one request to the connection's own origin. A redirect is an answer: nothing here follows one.
func (a *app) do(ctx context.Context, method, path, token string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	r.Header.Set("User-Agent", "execwarden")
	r.Header.Set("Authorization", "Bearer "+token)
	return a.next.RoundTrip(r)
}
