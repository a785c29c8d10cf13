package gateway

import (
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// artifact stands in for the runtime: by name.
func (f *peersFake) artifact(q ask.GetArtifact) (ask.GotArtifact, error) {
	got := ask.GotArtifact{Artifact: ask.Artifact{Name: q.Name, Type: artifact.Bytes}}
	switch q.Name {
	case "page.html":
		got.Artifact.Type, got.Value = artifact.Text, []byte("<script>alert(1)</script>")
	case "total":
		got.Artifact.Type, got.Value = artifact.JSON, []byte(`{"a":1}`)
	case "large":
		got.Upload = f.upload
	default:
		return got, problem.New(problem.NotFound, "there is no such artifact")
	}
	return got, nil
}

// An artifact is what a script wrote: it is downloaded, and no browser takes it for a page of ours.
func TestArtifacts(t *testing.T) {
	h := start(t)
	large := strings.Repeat("x", 600_000)
	var err error
	if h.upload, err = eventlog.New(h.bus.Conn(t, string(schemas.Runtime))).PutUpload(t.Context(), auth.MainTenant, []byte(large)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ kind, file, body string }{
		"page.html": {"text/plain; charset=utf-8", `attachment; filename=page.html`, "<script>alert(1)</script>"},
		"total":     {"application/json", `attachment; filename=total`, `{"a":1}`},
		"large":     {"application/octet-stream", `attachment; filename=large`, large},
	} {
		got := h.call(t, h.owner, "GET", "/v1/sessions/ses_1/artifacts/"+name, "")
		if got.status != 200 || got.body != c.body || got.header.Get("Content-Type") != c.kind || got.header.Get("Content-Disposition") != c.file ||
			got.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(got.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d %.60s %v", name, got.status, got.body, got.header)
		}
	}
	if q, ok := h.last("artifact_get"); !ok || q.who.Tenant != auth.MainTenant || q.body.(ask.GetArtifact).Of != "ses_1" {
		t.Errorf("%+v", q)
	}
	if got := h.call(t, h.owner, "GET", "/v1/sessions/ses_1/artifacts", ""); got.status != 200 || got.body != `{"owner":"ses_1","artifacts":[]}` {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]int{
		"/v1/sessions/ses_1/artifacts/none": 404, "/v1/sessions/ses_1/artifacts?x=1": 400, "/v1/sessions/ses_1/artifacts/total?x=1": 400,
	} {
		if got := h.call(t, h.owner, "GET", path, ""); got.status != want || got.header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := h.call(t, "", "GET", "/v1/sessions/ses_1/artifacts/total", ""); got.status != 401 {
		t.Errorf("without a token: %+v", got)
	}
}
