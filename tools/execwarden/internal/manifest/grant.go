package manifest

import (
	"context"
	"regexp"
	"time"

	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

type grantFields struct {
	Header    `yaml:",inline"`
	Agent     string         `yaml:"agent"`
	Tool      string         `yaml:"tool"`
	Repos     []string       `yaml:"repos"`
	Approval  grant.Approval `yaml:"approval"` // no default: whether a person is asked is to be read in the file
	Tainted   bool           `yaml:"tainted"`
	ExpiresAt string         `yaml:"expires_at"`
}

var (
	toolGlob = regexp.MustCompile(`^[a-z0-9*-]{1,64}\.[A-Za-z0-9_*-]{1,64}$`)
	repoGlob = regexp.MustCompile(`^[A-Za-z0-9*-]{1,39}/[A-Za-z0-9._*-]{1,100}$`)
)

func buildGrant(d *document) (r Resource) {
	f, ok := fields[grantFields](d)
	if !ok {
		return r
	}
	def := grant.Created{
		Grant: named[id.Grant](d), Agent: referTo[id.Agent](d, &r, Agent, "$.agent", f.Agent),
		Selector: grant.Selector{Tool: f.Tool, Repos: f.Repos}, Approval: f.Approval, Tainted: f.Tainted,
		ExpiresAt: d.time("$.expires_at", f.ExpiresAt),
	}
	if !toolGlob.MatchString(f.Tool) {
		d.fault("$.tool", "tool %.80q is not connection.tool, with * for any run of characters", f.Tool)
	}
	d.notEmpty("$.repos", len(f.Repos))
	for _, repo := range f.Repos {
		if !repoGlob.MatchString(repo) {
			d.fault("$.repos", "repository %.120q is not owner/name", repo)
		}
	}
	if f.Approval != grant.Never && f.Approval != grant.Always {
		d.fault("$.approval", "approval %.40q is not never or always", f.Approval)
	}
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, _ string) error { return api.PutGrant(ctx, def) }
	return r
}

// time reads an RFC 3339 time. A field that is there and has none would be no limit, so it is a fault.
func (d *document) time(path, text string) time.Time {
	if text == "" && d.node(path) == nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.fault(path, "%.40q is not an RFC 3339 time, such as 2027-01-31T18:00:00Z", text)
	}
	return t.UTC()
}
