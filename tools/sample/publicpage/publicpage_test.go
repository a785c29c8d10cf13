package publicpage

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPages(t *testing.T) {
	t.Parallel()
	status := Example
	status.Page = "<script>alert(1)</script>"
	s := New(status)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string, string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header.Get("Content-Type"), string(body)
	}

	if _, kind, body := get("/"); !strings.HasPrefix(kind, "text/html") || !strings.Contains(body, "documentation") || strings.Contains(body, "<script>") {
		t.Errorf("%s %s", kind, body)
	}
	_, _, body := get("/status.json")
	var got Status
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(status, got); diff != "" {
		t.Error(diff)
	}
	if code, _, _ := get("/other"); code != http.StatusNotFound || s.Hits() != 3 {
		t.Errorf("status %d, %d hits", code, s.Hits())
	}
}
