package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The description and the routes say the same, both ways, and no reference in the description leads nowhere.
func TestDescriptionIsOfTheRoutes(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components map[string]map[string]any
	}
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, operations := range doc.Paths {
		for method := range operations {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	routes := []string{describe, enrolRoute, ConnectRoute}
	for _, rt := range (&API{}).routes() {
		routes = append(routes, rt.pattern)
	}
	slices.Sort(described)
	slices.Sort(routes)
	if !slices.Equal(described, routes) {
		t.Errorf("described:\n%s\nroutes:\n%s", strings.Join(described, "\n"), strings.Join(routes, "\n"))
	}
	for _, part := range strings.Split(string(openAPI), `"#/components/`)[1:] {
		ref, _, _ := strings.Cut(part, `"`)
		section, name, _ := strings.Cut(ref, "/")
		if doc.Components[section][name] == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	}
}
