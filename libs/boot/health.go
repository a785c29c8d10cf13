package boot

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Health gathers what has to hold for the process to be ready.
type Health struct {
	mu     sync.Mutex
	checks map[string]func(context.Context) error
	facts  map[string]string
}

// NewHealth makes a Health without checks, which is ready.
func NewHealth() *Health {
	return &Health{checks: map[string]func(context.Context) error{}, facts: map[string]string{}}
}

// Tell says something that whoever looks at the process's readiness should know; it changes nothing.
func (h *Health) Tell(name, fact string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts[name] = fact
}

// Facts gives what was told.
func (h *Health) Facts() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.facts)
}

// Check adds a condition of readiness.
func (h *Health) Check(name string, ready func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = ready
}

// Expect makes the process not ready until Arrived is called with the same name.
func (h *Health) Expect(name string) {
	h.Check(name, func(context.Context) error { return problem.New(problem.Unavailable, "it has not started yet") })
}

// Arrived ends what Expect began.
func (h *Health) Arrived(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.checks, name)
}

// Failing runs every check and gives what fails, by name.
func (h *Health) Failing(ctx context.Context) map[string]problem.Detail {
	h.mu.Lock()
	checks := make(map[string]func(context.Context) error, len(h.checks))
	for n, c := range h.checks {
		checks[n] = c
	}
	h.mu.Unlock()
	failing := map[string]problem.Detail{}
	for name, ready := range checks {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		if err := ready(ctx); err != nil {
			failing[name] = problem.DetailOf(err)
		}
		cancel()
	}
	return failing
}

// serveHealth answers that the process lives; serveReady whether it can do its work, and what is missing.
func serveHealth(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

func (h *Health) serveReady(w http.ResponseWriter, r *http.Request) {
	failing := h.Failing(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if len(failing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(struct { // the prober is gone if this fails
		Ready   bool                      `json:"ready"`
		Failing map[string]problem.Detail `json:"failing,omitempty"`
		Facts   map[string]string         `json:"facts,omitempty"`
	}{len(failing) == 0, failing, h.Facts()})
}
