package manifest

import (
	"context"
	"slices"
	"strings"
	"text/template"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

type triggerFields struct {
	Header `yaml:",inline"`
	Hook   string   `yaml:"hook"`
	Events []string `yaml:"events"`
	Repos  []string `yaml:"repos"`
	Agent  string   `yaml:"agent"`
	Prompt string   `yaml:"prompt"`
}

func buildTrigger(d *document) (r Resource) {
	f, ok := fields[triggerFields](d)
	if !ok {
		return r
	}
	def := trigger.Defined{
		Trigger: named[id.Trigger](d), Hook: referTo[id.Hook](d, &r, Hook, "$.hook", f.Hook), Events: f.Events, Repos: f.Repos,
		Agent: referTo[id.Agent](d, &r, Agent, "$.agent", f.Agent), Prompt: f.Prompt,
	}
	if len(f.Events) == 0 || slices.Contains(f.Events, "") {
		d.fault("$.events", "a trigger lists the events that it is for, such as issues.opened")
	}
	if len(f.Repos) == 0 || slices.Contains(f.Repos, "") {
		d.fault("$.repos", "a trigger lists the repositories that it is for, as owner/name; without any it never fires")
	}
	if strings.TrimSpace(f.Prompt) == "" {
		d.fault("$.prompt", "a trigger has a prompt")
	} else if _, err := template.New("prompt").Parse(f.Prompt); err != nil {
		d.fault("$.prompt", "the prompt is not a Go text/template: %v", err)
	}
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, _ string) error { return api.PutTrigger(ctx, def) }
	return r
}
