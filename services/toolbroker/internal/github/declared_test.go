package github_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
)

// Every tool is declared in full within what a model is given, in a part of the bytes of their schemas.
func TestDeclared(t *testing.T) {
	p, err := github.New(github.Config{URL: "https://api.github.com", Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	tools, err := p.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	schemas := 0
	var all []*declare.Tool
	for _, tool := range tools {
		raw, err := json.Marshal(map[string]any{"name": "github__" + tool.Name, "description": tool.Description, "input_schema": tool.Schema})
		if err != nil {
			t.Fatal(err)
		}
		schemas += len(raw)
		all = append(all, declare.New("github", tool))
	}
	w := declare.Write(all, 24<<10)
	if w.Tools != len(tools) || w.Bare+w.Left > 0 || strings.Contains(w.Text, ": unknown") {
		t.Errorf("%d of %d tools, %d bare, %d left:\n%s", w.Tools, len(tools), w.Bare, w.Left, w.Text)
	}
	out := api.Transform(w.Text, api.TransformOptions{Loader: api.LoaderTS})
	if len(out.Errors) > 0 || strings.TrimSpace(string(out.Code)) != "" {
		t.Errorf("%v %s", out.Errors, out.Code)
	}
	if want := "add_issue_comment(args: {"; !strings.Contains(w.Text, want) {
		t.Errorf("no %s in\n%s", want, w.Text)
	}
	t.Logf("%d tools: as JSON Schema %d bytes (about %d tokens), declared %d (%d): %.2f of it", len(tools), schemas, schemas/4, len(w.Text), len(w.Text)/4, float64(len(w.Text))/float64(schemas))
}
