package manifest

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/libs/grantcheck"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

type grantFields struct {
	Header        `yaml:",inline"`
	Agent         string              `yaml:"agent"`
	Verdict       grant.Verdict       `yaml:"verdict"`
	Tool          string              `yaml:"tool"`
	Methods       []string            `yaml:"methods"`
	Effects       []connection.Effect `yaml:"effects"`
	Repos         []string            `yaml:"repos"`
	URIs          []string            `yaml:"uris"`
	Condition     string              `yaml:"condition"`
	Approval      grant.Approval      `yaml:"approval"` // no default: whether a person is asked is to be read in the file
	ApproveWhen   string              `yaml:"approve_when"`
	Quorum        int                 `yaml:"quorum"`
	Approver      member.Role         `yaml:"approver"`
	FourEyes      bool                `yaml:"four_eyes"`
	EscalateAfter string              `yaml:"escalate_after"` // such as 30m
	Tainted       bool                `yaml:"tainted"`
	Limits        limitFields         `yaml:"limits"`
	ExpiresAt     string              `yaml:"expires_at"`
}

type limitFields struct {
	Calls     int `yaml:"calls"`
	PerRun    int `yaml:"per_run"`
	PerMinute int `yaml:"per_minute"`
	AtOnce    int `yaml:"at_once"`
}

func buildGrant(d *document) (r Resource) {
	f, ok := fields[grantFields](d)
	if !ok {
		return r
	}
	def := grant.Created{
		Grant: named[id.Grant](d), Agent: referTo[id.Agent](d, &r, Agent, "$.agent", f.Agent), Verdict: f.Verdict,
		Selector:  grant.Selector{Tool: f.Tool, Methods: f.Methods, Effects: f.Effects, Repos: f.Repos, URIs: f.URIs},
		Condition: f.Condition, Approval: f.Approval, ApproveWhen: f.ApproveWhen, Quorum: f.Quorum, Approver: f.Approver, FourEyes: f.FourEyes, EscalateAfter: d.seconds("$.escalate_after", f.EscalateAfter), Tainted: f.Tainted,
		Limits: grant.Limits{Calls: f.Limits.Calls, PerRun: f.Limits.PerRun, PerMinute: f.Limits.PerMinute, AtOnce: f.Limits.AtOnce}, ExpiresAt: d.time("$.expires_at", f.ExpiresAt),
	}
	d.notEmpty("$.repos", len(f.Repos))
	d.notEmpty("$.methods", len(f.Methods))
	d.notEmpty("$.uris", len(f.URIs))
	d.notEmpty("$.effects", len(f.Effects))
	for _, f := range grantcheck.Faults(def, time.Time{}) { // that a time is over is for the server to say, whose clock counts
		if f.Field != "grant" { // names are checked, with their lines, by whoever reads them
			d.fault("$."+f.Field, "%s", f.Message)
		}
	}
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, _ string) error { return api.PutGrant(ctx, def) }
	return r
}

// seconds reads a duration such as 30m. A field that is there and has none would be none, so it is a fault.
func (d *document) seconds(path, text string) int {
	if text == "" && d.node(path) == nil {
		return 0
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < time.Second || v%time.Second != 0 {
		d.fault(path, "%.40q is not a duration in whole seconds, such as 30m", text)
	}
	return int(v / time.Second)
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
