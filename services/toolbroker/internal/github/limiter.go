package github

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// limited is the error of a request that GitHub's rate limits do not allow now. It had no effect.
type limited struct {
	primary bool // the hourly allowance; else one of the secondary limits, on bursts
	after   time.Duration
}

func (l *limited) Error() string {
	if l.primary {
		return fmt.Sprintf("GitHub's rate limit of this credential is used up; it is there again in %s", round(l.after))
	}
	return fmt.Sprintf("GitHub asks for a pause of %s (a secondary rate limit)", round(l.after))
}

func round(d time.Duration) time.Duration { return max(d.Round(time.Second), time.Second) }

// limiter holds requests back while a limit of GitHub's is in force, and lets writing ones pass one at a time. What only
// reads is tried again when a limit struck it; what writes is not, since nobody here knows whether it is still wanted.
type limiter struct {
	next   http.RoundTripper
	most   time.Duration // that one request waits
	writes *queue

	mu    sync.Mutex
	until map[string]time.Time // by resource; "" is all of them
}

// RoundTrip implements http.RoundTripper.
func (l *limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	if isRead(r) {
		return l.read(r)
	}
	leave, err := l.writes.enter(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := l.wait(r, 0); err != nil {
		return nil, err
	}
	return l.once(r)
}

func (l *limiter) read(r *http.Request) (*http.Response, error) {
	var waited time.Duration
	for {
		var err error
		if waited, err = l.wait(r, waited); err != nil {
			return nil, err
		}
		again := r
		if r.GetBody != nil { // a GraphQL query has one
			again = r.Clone(r.Context())
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := l.once(again)
		if _, limit := err.(*limited); !limit {
			return resp, err
		}
	}
}

// wait waits until no limit is in force for the request, and gives how long it has waited by then, waited included.
func (l *limiter) wait(r *http.Request, waited time.Duration) (time.Duration, error) {
	for {
		pause, primary := l.pause(resource(r))
		if pause <= 0 {
			return waited, nil
		}
		deadline, ok := r.Context().Deadline()
		if waited+pause > l.most || ok && time.Until(deadline) <= pause {
			return waited, &limited{primary, pause}
		}
		if err := sleep(r.Context(), pause); err != nil {
			return waited, err
		}
		waited += pause
	}
}

// once makes the request, and gives a limited error when a limit struck it.
func (l *limiter) once(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(resp)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	switch {
	case limit != nil:
		resp.Body.Close()
		l.note(resource(r), limit)
	case resp.Header.Get(headerRemaining) == "0": // the last that was allowed
		if reset := untilReset(resp.Header); reset > 0 {
			l.note(resource(r), &limited{true, reset})
		}
	}
	for _, h := range []string{headerRemaining, headerReset, headerLimit} {
		resp.Header.Del(h) // the library has a guard of its own, which knows only some of the shapes
	}
	if limit != nil {
		return nil, limit
	}
	return resp, nil
}

func (l *limiter) note(resource string, limit *limited) {
	if !limit.primary {
		resource = "" // a secondary limit is about the credential as a whole
	}
	at := time.Now().Add(limit.after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[string]time.Time{}
	}
	if at.After(l.until[resource]) {
		l.until[resource] = at
	}
}

// pause is how long to wait for a resource, and whether for its allowance.
func (l *limiter) pause(resource string) (pause time.Duration, primary bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, all := time.Until(l.until[resource]), time.Until(l.until[""])
	if own > all {
		return own, true
	}
	return all, false
}

// resource is which of GitHub's allowances a request counts against.
func resource(r *http.Request) string {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/search/code"):
		return "code_search"
	case strings.Contains(path, "/search/"):
		return "search"
	case strings.HasSuffix(path, "/graphql"):
		return "graphql"
	}
	return "core"
}

const (
	headerLimit     = "X-RateLimit-Limit"
	headerRemaining = "X-RateLimit-Remaining"
	headerReset     = "X-RateLimit-Reset"
)

// maxPause is the longest allowance. A date far off, from whatever stands in between, must not end the connection.
const maxPause = time.Hour

// limitOf reads GitHub's limits in each of the shapes in which it states them: 429; 403 with nothing remaining; 403 with
// Retry-After; 403 whose text, or whose documentation, is about limits (hub4j/github-api#2009).
func limitOf(resp *http.Response) (*limited, error) {
	after := time.Duration(0)
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		after = time.Duration(max(s, 1)) * time.Second
	} else if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err == nil {
		after = max(time.Until(at), time.Second)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
	case http.StatusForbidden:
		if after > 0 || resp.Header.Get(headerRemaining) == "0" {
			break
		}
		about, err := aboutLimits(resp)
		if err != nil || !about {
			return nil, err
		}
	default:
		return nil, nil
	}
	if after == 0 && resp.Header.Get(headerRemaining) == "0" {
		if reset := untilReset(resp.Header); reset > 0 {
			return &limited{true, reset}, nil
		}
	}
	// GitHub asks for a minute where it says nothing.
	return &limited{false, min(cmp.Or(after, time.Minute), maxPause)}, nil
}

// aboutLimits looks into the body of a 403, and puts it back.
func aboutLimits(resp *http.Response) (bool, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return false, problem.Wrap(err, problem.Upstream, "GitHub's answer cannot be read")
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	var said struct {
		Message string `json:"message"`
		About   string `json:"documentation_url"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return false, nil
	}
	text := strings.ToLower(said.Message)
	return strings.Contains(text, "rate limit") || strings.Contains(text, "abuse detection") ||
		strings.HasSuffix(said.About, "secondary-rate-limits") || strings.HasSuffix(said.About, "#abuse-rate-limits"), nil
}

// untilReset is how long until an allowance is whole again, by GitHub's own clock where it says what that shows.
func untilReset(h http.Header) time.Duration {
	at, err := strconv.ParseInt(h.Get(headerReset), 10, 64)
	if err != nil {
		return 0
	}
	now := time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(time.Unix(at, 0).Sub(now), maxPause)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
