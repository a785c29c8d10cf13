package egress

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestOriginsLeadToOneOrigin(t *testing.T) {
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("own")) }))
	defer own.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()

	o := NewOrigins(Rule{})
	defer o.CloseIdleConnections()
	way, err := o.To(own.URL+"/api", []string{own.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := o.To(own.URL+"/other", []string{own.Listener.Addr().String()}); err != nil || again != way {
		t.Errorf("the same origin has another way out (%v)", err)
	}
	client := &http.Client{Transport: way}
	resp, err := client.Get(own.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, err := client.Get(other.URL); problem.CodeOf(err) != problem.Denied {
		t.Errorf("another origin: %v, want denied", err)
	}
	without, err := o.To(own.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{Transport: without}).Get(own.URL); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a private address without exception: %v, want denied", err)
	}
}

func TestOriginsRefuseWhatIsNoOrigin(t *testing.T) {
	o := NewOrigins(Rule{})
	for _, raw := range []string{"", "://", "http://", "http://*/", "http://*.example.com/", "file:///etc/passwd", "ftp://example.com", "http://u:p@example.com/", "http://a b/"} {
		if _, err := o.To(raw, nil); err == nil {
			t.Errorf("%q leads somewhere", raw)
		}
	}
}
