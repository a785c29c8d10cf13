package apipackage_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
)

// Every operation of the large documents is declared as TypeScript, within the budget, in a part of the bytes of the
// schemas.
func TestDeclared(t *testing.T) {
	for name, spec := range map[string]spec{"github": githubSpec, "kubernetes": kubernetesSpec, "stripe": stripeSpec, "docusign": docusignSpec, "asana": asanaSpec} {
		t.Run(name, func(t *testing.T) {
			p, _, err := apipackage.Import(t.Context(), spec.source(t, manifestOf(name, "https://api.example.com")))
			if err != nil {
				t.Fatal(err)
			}
			tools, err := p.Tools()
			if err != nil {
				t.Fatal(err)
			}
			schemas := 0
			var all []*declare.Tool
			began := time.Now()
			for _, tool := range tools {
				all = append(all, declare.New(name, tool))
			}
			took := time.Since(began)
			for _, tool := range tools {
				raw, err := json.Marshal(map[string]any{"name": name + "__" + tool.Name, "description": tool.Description, "input_schema": tool.Schema})
				if err != nil {
					t.Fatal(err)
				}
				schemas += len(raw)
			}
			for _, most := range []int{24 << 10, 128 << 10, 16 << 20} {
				began := time.Now()
				w := declare.Write(all, most)
				wrote := time.Since(began)
				if len(w.Text) > most || w.Tools != len(tools) || most > 1<<20 && w.Bare+w.Left > 0 {
					t.Errorf("%d bytes of %d, %d tools of %d, %d bare, %d left", len(w.Text), most, w.Tools, len(tools), w.Bare, w.Left)
				}
				out := api.Transform(w.Text, api.TransformOptions{Loader: api.LoaderTS})
				if len(out.Errors) > 0 || strings.TrimSpace(string(out.Code)) != "" {
					t.Errorf("%v %.300s", out.Errors, out.Code)
				}
				t.Logf("%d tools: as JSON Schema %d bytes (about %d tokens), declared in %d: %d (%d), %.3f of it, %d in full or by signature, %d bare, %d left; made in %v, written in %v",
					len(tools), schemas, schemas/4, most, len(w.Text), len(w.Text)/4, float64(len(w.Text))/float64(schemas), w.Tools-w.Bare-w.Left, w.Bare, w.Left, took.Round(1e6), wrote.Round(1e5))
			}
		})
	}
}
