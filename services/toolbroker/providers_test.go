package toolbroker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/control"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Nothing is kept for a connection that is no more.
func TestForget(t *testing.T) {
	s := &Service{state: control.New(), indexes: map[connectionKey]indexed{}, declarations: map[connectionKey]declared{}, metrics: metrics{breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"tenant", "connection"})}}
	s.providers = newProviders(nil, s.state.Connection, s.state.Package, nil, nil, nil, slog.New(slog.DiscardHandler))
	s.index("tnt_a", "con_x")
	s.index("tnt_b", "con_x")
	for _, tenant := range []id.Tenant{"tnt_a", "tnt_b"} {
		s.declaration(tenant, policy.Tool{Full: "x.tool", Route: call.Upstream})
	}
	s.forget("tnt_a", "con_x")
	if _, kept := s.indexes[connectionKey{"tnt_b", "con_x"}]; !kept || len(s.indexes) != 1 {
		t.Errorf("%v", s.indexes)
	}
	if _, kept := s.declarations[connectionKey{"tnt_b", "con_x"}]; !kept || len(s.declarations) != 1 {
		t.Errorf("%v", s.declarations)
	}
}

// A vault that is away says nothing of a provider, which is asked again as soon as it is back.
func TestVaultAwayOpensNoBreaker(t *testing.T) {
	for _, c := range []connection.Type{connection.GitHub, connection.MCP} {
		t.Run(string(c), func(t *testing.T) {
			var asked atomic.Int64 // by the call, and by the ear of an MCP connection
			def := connection.Defined{Connection: "con_x", Type: c, URL: "http://127.0.0.1:1", Private: []string{"127.0.0.1:1"}, Credential: "sha256:x"}
			p := newProviders(func(context.Context, id.Tenant, connection.Defined) (vault.Secret, error) {
				asked.Add(1)
				return vault.Secret{}, problem.New(problem.Unavailable, "the vault is away")
			}, func(id.Tenant, string) (connection.Defined, bool) { return def, true }, func(id.Tenant, id.Connection) (connection.Packaged, bool) { return connection.Packaged{}, false },
				func(_ connectionKey, p upstream.Provider) upstream.Provider {
					return upstream.NewGuard(p, "x", upstream.Limits{InFlight: 1, Wait: time.Second, Failures: 2, Rest: time.Hour}, prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), slog.New(slog.DiscardHandler))
				}, func(connectionKey) {}, nil, slog.New(slog.DiscardHandler))
			t.Cleanup(p.close)
			provider, _, err := p.provider("tnt_a", "con_x", "")
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				before := asked.Load()
				_, err := provider.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "issue_read", Args: json.RawMessage(`{"method":"get","owner":"acme","repo":"shop","issue_number":7}`)})
				if err == nil || upstream.Ambiguous(err) || asked.Load() == before {
					t.Errorf("%v, ambiguous %v, asked %d times", err, upstream.Ambiguous(err), asked.Load()-before)
				}
			}
		})
	}
}
