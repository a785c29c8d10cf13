package api

import (
	"mime"
	"net/http"
	"strconv"

	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func (a *API) artifacts(r *http.Request, who auth.Identity, _ []byte) (ask.Artifacts, error) {
	if _, err := query(r); err != nil {
		return ask.Artifacts{}, err
	}
	return a.Peers.Artifacts(r.Context(), who, ask.ListArtifacts{Of: r.PathValue("id")})
}

var artifactTypes = map[artifact.Type]string{artifact.Text: "text/plain; charset=utf-8", artifact.JSON: "application/json"}

// artifact answers with the value itself, which a script wrote: a browser saves it and shows nothing of it.
func (a *API) artifact(w http.ResponseWriter, r *http.Request, who auth.Identity, _ []byte) error {
	if _, err := query(r); err != nil {
		return err
	}
	got, err := a.Peers.Artifact(r.Context(), who, ask.GetArtifact{Of: r.PathValue("id"), Name: r.PathValue("name")})
	if err != nil {
		return err
	}
	kind := artifactTypes[got.Artifact.Type]
	if kind == "" {
		kind = "application/octet-stream"
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(got.Value)))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": got.Artifact.Name}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(got.Value) // the client is gone if this fails
	return nil
}
