package model

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// refusal is the error object of both protocols, in a body or in a stream.
type refusal struct {
	Type, Code, Message string
}

// UnmarshalJSON takes what compatible servers make of the object: a number for a code, or just a sentence.
func (r *refusal) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &r.Message) == nil {
		return nil
	}
	var w struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	r.Type, r.Message = w.Type, w.Message
	_ = json.Unmarshal(w.Code, &r.Code) // a number says nothing that the status does not
	return nil
}

const (
	refusalBytes   = 64 << 10
	messageRunes   = 400
	retryAfterMost = 24 * time.Hour // a longer wait is as good as a refusal, and a typo must not park a run for a year
)

// refusedBy turns an HTTP answer that is not 200 into a Failure.
func (a *asker) refusedBy(resp *http.Response) *Failure {
	var body struct {
		Error refusal `json:"error"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBytes)) // what was read is all there is to tell
	_ = json.Unmarshal(raw, &body)                                // not JSON: the status has to do
	f := a.failure(resp.StatusCode, body.Error)
	f.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	return f
}

// refusedInStream turns an error event into a Failure. The HTTP status was 200, so the type stands in for it.
func (a *asker) refusedInStream(r refusal) *Failure {
	status := http.StatusBadRequest
	switch r.Type {
	case "overloaded_error", "service_unavailable", "service_unavailable_error":
		status = http.StatusServiceUnavailable
	case "rate_limit_error", "rate_limit_exceeded", "requests", "tokens":
		status = http.StatusTooManyRequests
	case "api_error", "server_error", "internal_error", "internal_server_error", "timeout_error", "":
		status = http.StatusInternalServerError
	}
	return a.failure(status, r)
}

func (a *asker) failure(status int, r refusal) *Failure {
	said := a.quote(r.Message)
	switch {
	case status == http.StatusRequestEntityTooLarge, r.Code == "context_length_exceeded",
		strings.HasPrefix(r.Message, "prompt is too long"):
		return final(problem.TooLarge, "the conversation is too long for the model%s", said)
	case r.Code == "insufficient_quota", r.Type == "insufficient_quota":
		// A 429 that waiting does not heal.
		return final(problem.Upstream, "the model provider's account has no quota left%s", said)
	case status == http.StatusTooManyRequests:
		return &Failure{Problem: problem.New(problem.Busy, "the model provider limits the rate%s", said), Retryable: true}
	case status == http.StatusServiceUnavailable, status == 529: // 529: Anthropic's overloaded
		return &Failure{Problem: problem.New(problem.Unavailable, "the model provider is overloaded%s", said), Retryable: true}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return final(problem.Upstream, "the model provider refused the key (HTTP %d)%s", status, said)
	case status >= 300 && status < 400:
		return final(problem.Upstream, "the model provider redirects (HTTP %d); a base URL is used as it is written", status)
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict:
		return broken("the model provider failed (HTTP %d)%s", status, said)
	}
	return final(problem.Upstream, "the model provider refused the request (HTTP %d)%s", status, said)
}

// quote makes a provider's words fit for people: one short printable line, and never the key, which some providers
// repeat in the error that refuses it.
func (a *asker) quote(s string) string {
	if key := a.reveal(); key != "" {
		s = strings.ReplaceAll(s, key, redacted)
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }), " ")
	if s == "" {
		return ""
	}
	if runes := []rune(s); len(runes) > messageRunes {
		s = string(runes[:messageRunes]) + "…"
	}
	return ": " + s
}

// retryAfter reads both forms of the header: seconds, and a date.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	var wait time.Duration
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		wait = retryAfterMost
		if s < retryAfterMost.Seconds() { // also false for NaN; a float beyond the range must not wrap
			wait = time.Duration(s * float64(time.Second))
		}
	} else if t, err := http.ParseTime(v); err == nil {
		wait = t.Sub(now)
	}
	return min(max(wait, 0), retryAfterMost)
}
