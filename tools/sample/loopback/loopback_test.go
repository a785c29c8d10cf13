package loopback

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerLife(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })}
	if err := s.Close(); err == nil {
		t.Error("a server that was not started closes without a word")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("URL %s is not on loopback", s.URL())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "hi" {
		t.Errorf("body %q", body)
	}
	cancel()
	<-s.serving // the context alone ends it
	if _, err := client.Do(req); err == nil {
		t.Error("it still serves")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseWaitsForHandlers(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), false
	s := &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		ended = true // the race detector sees it when Close does not wait
	})}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-started
		s.cancel()
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader("a body that nobody reads"))
	if resp, err := client.Do(req); err == nil {
		resp.Body.Close()
	}
	if err := s.Close(); err != nil || !ended {
		t.Errorf("ended %v, %v", ended, err)
	}
}
