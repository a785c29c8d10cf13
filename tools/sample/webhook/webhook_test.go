package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The vector of GitHub's documentation on validating deliveries.
func TestSign(t *testing.T) {
	t.Parallel()
	const want = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	if got := Sign("It's a Secret to Everybody", []byte("Hello, World!")); got != want {
		t.Errorf("Sign = %s, want %s", got, want)
	}
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	for _, e := range Examples {
		if !json.Valid(Payload(e)) {
			t.Errorf("%s is not JSON", e)
		}
	}
	var opened struct {
		Action string
		Issue  struct{ Number int }
	}
	if err := json.Unmarshal(Payload(IssuesOpened), &opened); err != nil || opened.Action != "opened" || opened.Issue.Number != 1 {
		t.Errorf("issues.opened: %+v, %v", opened, err)
	}
}

func TestDeliver(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for name, want := range map[string]string{
			"X-Hub-Signature-256": Sign("s3cret", body),
			"X-GitHub-Event":      "issues",
			"X-GitHub-Delivery":   "72d3162e-cc78-11e3-81ab-4c9367dc0958",
			"X-GitHub-Hook-ID":    "42",
			"Content-Type":        "application/json",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if !bytes.Equal(body, Payload(IssuesOpened)) {
			t.Error("the body was changed on its way")
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	resp, err := Deliver(t.Context(), srv.Client(), Delivery{
		URL: srv.URL, Secret: "s3cret", Event: "issues", ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", HookID: "42", Body: Payload(IssuesOpened),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Error(resp.Status)
	}
}
