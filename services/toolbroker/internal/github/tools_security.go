package github

import (
	"context"
	"net/url"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/schemas/connection"
)

func severity(words ...string) param {
	return choice("severity", "", func(a *arguments) *string { return &a.Severity }, words...)
}

var securityTools = []tool{
	{
		name: "list_code_scanning_alerts", effect: connection.Pure, risk: exposes,
		about:    "List what code scanning found. state is open when left out.",
		required: inRepo(),
		optional: []param{state("open", "closed", "dismissed", "fixed"), severity("critical", "high", "medium", "low", "warning", "note", "error"), ref,
			of("tool_name", aText, "only what this tool found", func(a *arguments) *string { return &a.Event }, text(100, oneLine)), page, perPage},
		routes: []string{"GET {repo}/code-scanning/alerts"}, needs: permissions{"security_events": "read"},
		call: listCodeAlerts,
	},
	{
		name: "list_dependabot_alerts", effect: connection.Pure, risk: exposes,
		about:    "List dependencies with known vulnerabilities.",
		required: inRepo(),
		optional: []param{state("auto_dismissed", "dismissed", "fixed", "open"), severity("low", "medium", "high", "critical"), perPage, after},
		routes:   []string{"GET {repo}/dependabot/alerts"}, needs: permissions{"vulnerability_alerts": "read"},
		call: listDependabotAlerts,
	},
}

type codeAlert struct {
	Number   int    `json:"number"`
	State    string `json:"state"`
	Rule     string `json:"rule"`
	Severity string `json:"severity,omitempty"`
	Tool     string `json:"tool"`
	Message  string `json:"message,omitempty"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
	Ref      string `json:"ref,omitempty"`
	URL      string `json:"url"`
}

func listCodeAlerts(ctx context.Context, s session, a arguments) (any, error) {
	q := pages(a.list())
	set(q, "state", a.State, "severity", a.Severity, "ref", a.Ref, "tool_name", a.Event)
	list, resp, err := get[[]*github.Alert](ctx, s, a.at("/code-scanning/alerts"), q)
	if err != nil {
		return nil, err
	}
	return listed(list, resp, func(c *cutter, alert *github.Alert) codeAlert {
		at := alert.GetMostRecentInstance()
		out := codeAlert{Number: alert.GetNumber(), State: alert.GetState(), Rule: alert.GetRule().GetID(), Severity: alert.GetRule().GetSecuritySeverityLevel(), Tool: alert.GetTool().GetName(),
			Message: c.text(at.GetMessage().GetText(), maxShort), Path: at.GetLocation().GetPath(), Line: at.GetLocation().GetStartLine(), Ref: at.GetRef(), URL: alert.GetHTMLURL()}
		if out.Severity == "" {
			out.Severity = alert.GetRule().GetSeverity()
		}
		return out
	}), nil
}

type dependencyAlert struct {
	Number     int    `json:"number"`
	State      string `json:"state"`
	Package    string `json:"package"`
	Ecosystem  string `json:"ecosystem"`
	Manifest   string `json:"manifest"`
	Severity   string `json:"severity"`
	GHSA       string `json:"ghsa"`
	CVE        string `json:"cve,omitempty"`
	Summary    string `json:"summary"`
	Vulnerable string `json:"vulnerable,omitempty"`
	Patched    string `json:"patched,omitempty"`
	URL        string `json:"url"`
}

func listDependabotAlerts(ctx context.Context, s session, a arguments) (any, error) {
	q := pages(github.ListOptions{PerPage: a.list().PerPage})
	set(q, "state", a.State, "severity", a.Severity, "after", a.After)
	list, resp, err := get[[]*github.DependabotAlert](ctx, s, a.at("/dependabot/alerts"), q)
	if err != nil {
		return nil, err
	}
	return listed(list, resp, func(c *cutter, alert *github.DependabotAlert) dependencyAlert {
		on, about, what := alert.GetDependency(), alert.GetSecurityAdvisory(), alert.GetSecurityVulnerability()
		return dependencyAlert{alert.GetNumber(), alert.GetState(), on.GetPackage().GetName(), on.GetPackage().GetEcosystem(), on.GetManifestPath(), about.GetSeverity(),
			about.GetGHSAID(), about.GetCVEID(), c.text(about.GetSummary(), maxShort), what.GetVulnerableVersionRange(), what.GetFirstPatchedVersion().GetIdentifier(), alert.GetHTMLURL()}
	}), nil
}

// set sets what is not empty, of names and values in turn.
func set(q url.Values, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
}
