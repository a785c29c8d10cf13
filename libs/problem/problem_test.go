package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

// every code of the vocabulary, by hand, so that a new one is seen here and in the table of edges.
var every = []problem.Code{
	problem.Invalid, problem.TooLarge, problem.Unauthenticated, problem.Denied, problem.NotFound, problem.Conflict, problem.Held, problem.Expired,
	problem.Cancelled, problem.Unknown, problem.Timeout, problem.Busy, problem.Unavailable, problem.AuditUnavailable, problem.Pending,
	problem.BudgetExhausted, problem.Upstream, problem.BusDenied, problem.Internal,
}

func TestEveryCodeHasItsEdges(t *testing.T) {
	if len(problem.Codes()) != len(every) {
		t.Errorf("%d codes have a status and an exit code, want %d", len(problem.Codes()), len(every))
	}
	for _, c := range every {
		status, exit := c.Status(), problem.ExitCode(problem.New(c, "x"))
		if http.StatusText(status) == "" || status < 200 {
			t.Errorf("%s has status %d", c, status)
		}
		if exit < 1 || exit > 6 {
			t.Errorf("%s exits with %d", c, exit)
		}
		if status < 300 && c != problem.Held && c != problem.Pending {
			t.Errorf("%s is told as a success, %d", c, status)
		}
	}
	if problem.ExitCode(nil) != 0 || problem.ExitCode(errors.New("x")) != 1 || problem.ExitCode(problem.New("new_code", "x")) != 1 {
		t.Error("exit codes of what is not in the table")
	}
	if problem.Code("new_code").Status() != 500 || problem.Code("").Status() != 500 {
		t.Error("statuses of what is not in the table")
	}
}

func TestCodeOf(t *testing.T) {
	inner := problem.New(problem.NotFound, "inner")
	for name, c := range map[string]struct {
		err  error
		want problem.Code
	}{
		"nothing":                {nil, ""},
		"a plain error":          {errors.New("x"), problem.Internal},
		"wrapped":                {fmt.Errorf("while: %w", inner), problem.NotFound},
		"the outermost":          {problem.Wrap(inner, problem.Denied, "outer"), problem.Denied},
		"joined":                 {errors.Join(errors.New("x"), inner), problem.NotFound},
		"a deadline":             {fmt.Errorf("x: %w", context.DeadlineExceeded), problem.Timeout},
		"a cancellation":         {context.Canceled, problem.Cancelled},
		"a code over a deadline": {problem.Wrap(context.DeadlineExceeded, problem.Unavailable, "x"), problem.Unavailable},
	} {
		if got := problem.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if !errors.Is(problem.Wrap(context.Canceled, problem.Busy, "x"), context.Canceled) {
		t.Error("the cause is lost to the program itself")
	}
}

// A cause may hold what others must not see.
func TestCausesStayInside(t *testing.T) {
	const canary = "ghp_canary"
	cause := errors.New("Authorization: " + canary)
	for name, err := range map[string]error{
		"plain":   cause,
		"wrapped": problem.Wrap(cause, problem.Upstream, "GitHub did not answer"),
		"deep":    fmt.Errorf("handling %s: %w", canary, problem.Wrap(cause, problem.Denied, "no")),
		"context": fmt.Errorf("%s: %w", canary, context.DeadlineExceeded),
		"stopped": fmt.Errorf("%s: %w", canary, context.Canceled),
	} {
		d := problem.DetailOf(err)
		if strings.Contains(d.Message, canary) || d.Message == "" || d.Code == "" {
			t.Errorf("%s: %+v", name, d)
		}
		raw, marshalErr := json.Marshal(d)
		w := httptest.NewRecorder()
		problem.WriteHTTP(w, err)
		if marshalErr != nil || strings.Contains(string(raw), canary) || strings.Contains(w.Body.String(), canary) {
			t.Errorf("%s leaves the process: %s %s", name, raw, w.Body)
		}
		if again := d.Err(); problem.DetailOf(again) != d {
			t.Errorf("%s changes on its way: %+v", name, problem.DetailOf(again))
		}
	}
}

func TestHTTPDocument(t *testing.T) {
	for _, c := range every {
		w := httptest.NewRecorder()
		problem.WriteHTTP(w, problem.New(c, "say <what> & why"))
		var doc struct {
			Type, Title, Code, Detail string
			Status                    int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.Status() || doc.Status != c.Status() || doc.Code != string(c) || doc.Title == "" || doc.Detail != "say <what> & why" ||
			!strings.HasSuffix(doc.Type, "/"+string(c)) || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %+v", c, w.Code, doc)
		}
	}
	w := httptest.NewRecorder()
	problem.WriteHTTPStatus(w, problem.New(problem.Pending, "x"), 503)
	if w.Code != 503 || !strings.Contains(w.Body.String(), `"status":503`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
