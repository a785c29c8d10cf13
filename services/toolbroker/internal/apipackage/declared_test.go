package apipackage_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
)

// declared declares every operation of a large document as TypeScript, within a budget and without, and says what part
// of the schemas' bytes that takes.
func declared(t *testing.T, name string, tools []connection.Tool) {
	schemas := 0
	var all []*declare.Tool
	for _, tool := range tools {
		raw, err := json.Marshal(map[string]any{"name": name + "__" + tool.Name, "description": tool.Description, "input_schema": tool.Schema})
		if err != nil {
			t.Fatal(err)
		}
		schemas += len(raw)
		all = append(all, declare.New(name, tool))
	}
	for _, most := range []int{24 << 10, 16 << 20} {
		w := declare.Write(all, most)
		if len(w.Text) > most || w.Tools != len(tools) || most > 1<<20 && w.Bare+w.Left > 0 {
			t.Errorf("%d bytes of %d, %d tools of %d, %d bare, %d left", len(w.Text), most, w.Tools, len(tools), w.Bare, w.Left)
		}
		out := api.Transform(w.Text, api.TransformOptions{Loader: api.LoaderTS})
		if len(out.Errors) > 0 || strings.TrimSpace(string(out.Code)) != "" {
			t.Errorf("%v %.300s", out.Errors, out.Code)
		}
		t.Logf("%d tools: as JSON Schema %d bytes (about %d tokens), declared in %d: %d (%d), %.3f of it, %d in full or by signature, %d bare, %d left",
			len(tools), schemas, schemas/4, most, len(w.Text), len(w.Text)/4, float64(len(w.Text))/float64(schemas), w.Tools-w.Bare-w.Left, w.Bare, w.Left)
	}
}
