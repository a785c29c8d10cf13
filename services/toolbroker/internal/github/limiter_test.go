package github_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// wire is a way out without a network, so that a test's clock can stand still.
type wire func(w *httptest.ResponseRecorder, r *http.Request)

// RoundTrip implements http.RoundTripper.
func (f wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	w := httptest.NewRecorder()
	f(w, r)
	return w.Result(), r.Context().Err()
}

// shapes are the ways in which GitHub states a limit that passes after 5 seconds, or after a minute where it does not say
// (hub4j/github-api#2009).
var shapes = map[string]struct {
	answer func(*httptest.ResponseRecorder)
	after  time.Duration
}{
	"403 with nothing remaining": {func(w *httptest.ResponseRecorder) {
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(5*time.Second).Unix()))
		w.WriteHeader(403)
	}, 5 * time.Second},
	"429 with nothing remaining": {func(w *httptest.ResponseRecorder) {
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(5*time.Second).Unix()))
		w.WriteHeader(429)
	}, 5 * time.Second},
	"429 with Retry-After": {func(w *httptest.ResponseRecorder) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(429)
	}, 5 * time.Second},
	"403 with Retry-After": {func(w *httptest.ResponseRecorder) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(403)
	}, 5 * time.Second},
	"403 with Retry-After as a date": {func(w *httptest.ResponseRecorder) {
		w.Header().Set("Retry-After", time.Now().Add(5*time.Second).UTC().Format(http.TimeFormat))
		w.WriteHeader(403)
	}, 5 * time.Second},
	"403 with the text of a secondary limit": {func(w *httptest.ResponseRecorder) {
		w.WriteHeader(403)
		fmt.Fprint(w, `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes."}`)
	}, time.Minute},
	"403 with its documentation": {func(w *httptest.ResponseRecorder) {
		w.WriteHeader(403)
		fmt.Fprint(w, `{"message":"x","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`)
	}, time.Minute},
	"429 and nothing else": {func(w *httptest.ResponseRecorder) { w.WriteHeader(429) }, time.Minute},
}

const readIssue = `{"method":"get","owner":"acme","repo":"shop","issue_number":7}`

func call(ctx context.Context, p *github.Provider, tool, args string) (upstream.Result, error) {
	return p.Call(ctx, upstream.Call{Call: "call_1", Tool: tool, Args: json.RawMessage(args), Effect: "call_1"})
}

// A read waits a limit out when that is soon, and is asked again; else it says when to try again. A write is not sent
// again, whatever the limit.
func testLimits(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p := provider(t, github.Config{URL: "https://api.github.com", Transport: wire(func(w *httptest.ResponseRecorder, r *http.Request) {
					if asked++; asked == 1 {
						shape.answer(w)
						return
					}
					fmt.Fprint(w, `{"id":42,"number":7}`)
				})})
				began := time.Now()
				got, err := call(t.Context(), p, "issue_read", readIssue)
				switch {
				case shape.after <= 20*time.Second:
					if err != nil || got.ToolError || asked != 2 || time.Since(began) != shape.after {
						t.Errorf("a read: %s, %v, asked %d times in %s", got.Content, err, asked, time.Since(began))
					}
				case err != nil || !got.ToolError || asked != 1 || !strings.Contains(string(got.Content), `"retry_after_seconds":60`):
					t.Errorf("a read: %s, %v, asked %d times", got.Content, err, asked)
				}
				time.Sleep(2 * time.Minute)
				asked = 0
				got, err = call(t.Context(), p, "add_issue_comment", comment)
				if err != nil || !got.ToolError || asked != 1 || !strings.Contains(string(got.Content), fmt.Sprintf(`"retry_after_seconds":%d`, int(shape.after.Seconds()))) {
					t.Errorf("a write: %s, %v, asked %d times", got.Content, err, asked)
				}
				// It is over: the next one is sent, and not before.
				ended := time.Now()
				got, err = call(t.Context(), p, "issue_read", readIssue)
				if shape.after > 20*time.Second {
					if !got.ToolError || asked != 1 {
						t.Errorf("asked within the limit: %s, %v", got.Content, err)
					}
					time.Sleep(time.Minute)
					got, err = call(t.Context(), p, "issue_read", readIssue)
				}
				if err != nil || got.ToolError || time.Since(ended) < shape.after {
					t.Errorf("after it: %s, %v, %s later", got.Content, err, time.Since(ended))
				}
			})
		})
	}
}

// The last request that an allowance has room for says so, and the next one waits without being refused first; an
// allowance of searches does not stop reads.
func TestTheLastOfAnAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		p := provider(t, github.Config{URL: "https://api.github.com", Transport: wire(func(w *httptest.ResponseRecorder, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/search/") {
				asked = append(asked, time.Now())
				w.Header().Set("X-RateLimit-Remaining", "0")
				w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(10*time.Second).Unix()))
			}
			fmt.Fprint(w, `{"number":7,"items":[]}`)
		})})
		began := time.Now()
		for range 2 {
			if got, err := call(t.Context(), p, "search_issues", `{"owner":"acme","repo":"shop","query":"x"}`); err != nil || got.ToolError {
				t.Errorf("%s, %v", got.Content, err)
			}
			if got, err := call(t.Context(), p, "issue_read", readIssue); err != nil || got.ToolError {
				t.Errorf("%s, %v", got.Content, err)
			}
		}
		if len(asked) != 2 || asked[1].Sub(began) != 10*time.Second {
			t.Errorf("searched at %v, began %v", asked, began)
		}
	})
}

// Who waits for a limit gives up when the caller does; a limit that would outlast the caller is not waited for at all.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := provider(t, github.Config{URL: "https://api.github.com", Transport: wire(func(w *httptest.ResponseRecorder, _ *http.Request) {
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(429)
		})})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		if _, err := call(ctx, p, "issue_read", readIssue); err == nil || upstream.Ambiguous(err) {
			t.Errorf("given up: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		began := time.Now()
		if got, err := call(ctx, p, "issue_read", readIssue); err != nil || !got.ToolError || time.Since(began) != 0 {
			t.Errorf("%s, %v, after %s", got.Content, err, time.Since(began))
		}
	})
}

// A 403 that is about permissions is no limit, and its text arrives.
func TestForbiddenIsNoLimit(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(403)
		fmt.Fprint(w, `{"message":"Resource not accessible by personal access token"}`)
	})
	got, err := h.do(t, "issue_read", readIssue)
	if err != nil || !strings.Contains(string(got.Content), "not accessible") || strings.Contains(string(got.Content), "retry_after") {
		t.Errorf("%s, %v", got.Content, err)
	}
}

// Writes of one credential are made one at a time and a second apart; too many that wait are refused, and had no effect.
func testWritesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began []time.Time
		busy := 0
		p := provider(t, github.Config{URL: "https://api.github.com", WriteEvery: time.Second, WriteQueue: 3, Transport: wire(func(w *httptest.ResponseRecorder, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			mu.Lock()
			began = append(began, time.Now())
			busy++
			if busy > 1 {
				t.Error("two writes at once")
			}
			mu.Unlock()
			time.Sleep(500 * time.Millisecond)
			mu.Lock()
			busy--
			mu.Unlock()
			w.WriteHeader(201)
			fmt.Fprint(w, `{"id":42}`)
		})})
		var wait sync.WaitGroup
		var refused []error
		for range 8 {
			wait.Go(func() {
				if _, err := call(t.Context(), p, "add_issue_comment", comment); err != nil {
					mu.Lock()
					refused = append(refused, err)
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		for i := 1; i < len(began); i++ {
			if d := began[i].Sub(began[i-1]); d != 1500*time.Millisecond {
				t.Errorf("write %d began %s after the one before", i, d)
			}
		}
		if len(began) < 3 || len(began)+len(refused) != 8 {
			t.Errorf("%d were made, %d refused", len(began), len(refused))
		}
		for _, err := range refused {
			if problem.CodeOf(err) != problem.Busy || upstream.Ambiguous(err) {
				t.Errorf("%v", err)
			}
		}
		// Whoever waits for its turn may give up; nothing was sent.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		if _, err := call(ctx, p, "add_issue_comment", comment); err == nil || upstream.Ambiguous(err) {
			t.Errorf("given up: %v", err)
		}
	})
}
