package up

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/execwarden/execwarden/schemas/grant"
)

// traceCollector takes OTLP over HTTP, as a real one does.
type traceCollector struct {
	mu    sync.Mutex
	names map[string]map[string]bool // trace id -> names of its spans
	links map[string]map[string]bool // trace id -> names of spans that link to it
}

func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	var req collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(raw, &req) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	note := func(m map[string]map[string]bool, trace []byte, name string) {
		id := hex.EncodeToString(trace)
		if m[id] == nil {
			m[id] = map[string]bool{}
		}
		m[id][name] = true
	}
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				note(c.names, span.TraceId, span.Name)
				for _, l := range span.Links {
					note(c.links, l.TraceId, span.Name)
				}
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// One trace goes from the webhook through every service that has a part in the run, an approval by somebody else's
// request included, and the ledger's batches link to it.
func TestOneTrace(t *testing.T) {
	c := &traceCollector{names: map[string]map[string]bool{}, links: map[string]map[string]bool{}}
	srv := httptest.NewServer(c)
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver(guid)
	w.approve(w.waitingApproval())
	w.ended()
	w.mustVerify()
	w.stop() // flushes what is left

	c.mu.Lock()
	defer c.mu.Unlock()
	for id, names := range c.names {
		if !names["deliver webhook"] {
			continue
		}
		for _, want := range []string{"hear webhooks_hook", "ask agentloop.run_start", "agentloop.run_start", "hear agentloop_run", "hear agentloop_call",
			"hear toolbroker_requested", "hear approvals_held", "hear toolbroker_approval", "hear toolbroker_admitted", "hear runtime_admitted"} {
			if !names[want] {
				t.Errorf("the trace has no span %q", want)
			}
		}
		if !c.links[id]["record EW_ACTIVITY"] {
			t.Error("the ledger does not link to the trace")
		}
		return
	}
	t.Fatalf("no trace begins with the webhook; %d traces", len(c.names))
}
