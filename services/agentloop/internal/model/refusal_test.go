package model

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, retryAfter, body string
		status                 int
		code                   problem.Code
		retryable              bool
		wait                   time.Duration
		says                   string
	}{
		{"seconds", "7", `{"error":{"message":"slow down"}}`, 429, problem.Busy, true, 7 * time.Second, "slow down"},
		{"a date", time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat), "", 429, problem.Busy, true, 24 * time.Hour, ""},
		{"a date that is over", "Wed, 21 Oct 2015 07:28:00 GMT", "", 503, problem.Unavailable, true, 0, ""},
		{"a year", "31536000", "", 503, problem.Unavailable, true, 24 * time.Hour, ""},
		{"beyond a number", "1e300", "", 503, problem.Unavailable, true, 24 * time.Hour, ""},
		{"negative", "-5", "", 503, problem.Unavailable, true, 0, ""},
		{"nonsense", "soon", "", 503, problem.Unavailable, true, 0, ""},
		{"overloaded", "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 529, problem.Unavailable, true, 0, "Overloaded"},
		{"no quota", "1", `{"error":{"code":"insufficient_quota"}}`, 429, problem.Upstream, false, time.Second, "quota"},
		{"wrong key", "", `{"error":{"message":"Incorrect API key: sk-canary"}}`, 401, problem.Upstream, false, 0, "Incorrect API key: [redacted]"},
		{"unknown model", "", `{"error":"model \"x\" not found"}`, 404, problem.Upstream, false, 0, `model "x" not found`},
		{"too long", "", `{"error":{"code":"context_length_exceeded"}}`, 400, problem.TooLarge, false, 0, ""},
		{"too long, in words", "", `{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}`, 400, problem.TooLarge, false, 0, "9 > 8"},
		{"too large", "", ``, 413, problem.TooLarge, false, 0, ""},
		{"a proxy's page", "", "<html>\x1b[31mBad gateway", 502, problem.Upstream, true, 0, "HTTP 502"},
		{"a number for a code", "", `{"error":{"code":400,"message":"two\nlines\u001b[2J"}}`, 400, problem.Upstream, false, 0, "two lines [2J"},
		{"endless words", "", `{"error":{"message":"` + strings.Repeat("é", 9000) + `"}}`, 400, problem.Upstream, false, 0, "é…"},
		{"an endless body", "", strings.Repeat("x", 1<<20), 500, problem.Upstream, true, 0, ""},
	} {
		for _, protocol := range []Protocol{OpenAI, Anthropic} {
			t.Run(fmt.Sprint(protocol, " ", tc.name), func(t *testing.T) {
				p, _ := serve(t, protocol, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", tc.retryAfter)
					w.WriteHeader(tc.status)
					_, _ = w.Write([]byte(tc.body))
				})
				_, err := p.Complete(t.Context(), hello(), nil)
				f := wantFailure(t, err, tc.code, tc.retryable)
				if f.RetryAfter != tc.wait {
					t.Errorf("RetryAfter = %v, want %v", f.RetryAfter, tc.wait)
				}
				if !strings.Contains(f.Problem.Message, tc.says) || len(f.Problem.Message) > 1200 {
					t.Errorf("message %q, want it to say %q", f.Problem.Message, tc.says)
				}
			})
		}
	}
}

func TestRetryAfterDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := retryAfter("Fri, 02 Jan 2026 03:05:05 GMT", now); got != time.Minute {
		t.Errorf("retryAfter = %v, want 1m", got)
	}
	if got := retryAfter("NaN", now); got < 0 || got > retryAfterMost {
		t.Errorf("retryAfter(NaN) = %v", got)
	}
}
