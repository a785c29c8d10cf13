package oauth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/execwarden/execwarden/services/gateway/internal/edge"
)

// What this site says of itself as a client is what it would take of another; over http it says nothing.
func TestDocumentOfOurOwn(t *testing.T) {
	for at, there := range map[string]bool{"https://warden.example.com": true, "http://127.0.0.1:8080": false} {
		public, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Site: edge.NewSite(public, nil)}
		mux := http.NewServeMux()
		s.Register(mux)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, at+"/oauth/client.json", nil))
		if !there {
			if s.Document() != "" || w.Code != http.StatusNotFound {
				t.Errorf("%s: %q, %d", at, s.Document(), w.Code)
			}
			continue
		}
		var doc metadata
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if err := doc.check(s.Document()); err != nil || w.Header().Get("Content-Type") != "application/json" || len(doc.Redirects) != 1 || doc.Redirects[0] != at+CallbackPath || !has(doc.Grants, "refresh_token") {
			t.Errorf("%+v: %v", doc, err)
		}
	}
}
