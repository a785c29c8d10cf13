package github

import (
	"context"
	"regexp"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/schemas/connection"
)

// A search's path names no repository, so its text has to: it starts with the repository that the call was admitted for,
// the rest may name no other nor say OR, and what GitHub finds elsewhere all the same is not shown.
var searchTools = []tool{
	{
		name: "search_code", effect: connection.Pure, risk: reads,
		about:    "Search the code of a repository, on its default branch. The repository is added to the query; it must not name one itself.",
		required: inRepo(query), optional: []param{order(), page, perPage},
		routes: []string{"GET search/code?q=repo:{repo}"}, needs: permissions{"contents": "read"},
		call: searchCode,
	},
	{
		name: "search_repositories", effect: connection.Pure, risk: reads,
		about:    "Search the public repositories of GitHub. Private ones are not searched, since no grant bounds this tool.",
		required: []param{of("query", aText, "", func(a *arguments) *string { return &a.Query }, text(256, badPublicQuery)).also("q")},
		optional: []param{sort("stars", "forks", "updated"), order(), page, perPage},
		routes:   []string{"GET search/repositories?q=is:public"},
		call:     searchRepositories,
	},
	{
		name: "search_issues", effect: connection.Pure, risk: reads,
		about:    "Search the issues of a repository. The repository is added to the query; it must not name one itself.",
		required: inRepo(query), optional: []param{sort("comments", "created", "updated", "reactions", "interactions"), order(), page, perPage},
		routes: []string{"GET search/issues?q=repo:{repo} is:issue"}, needs: permissions{"issues": "read"},
		call: func(ctx context.Context, s session, a arguments) (any, error) {
			return searchIssues(ctx, s, a, "is:issue")
		},
	},
	{
		name: "search_pull_requests", effect: connection.Pure, risk: reads,
		about:    "Search the pull requests of a repository. The repository is added to the query; it must not name one itself.",
		required: inRepo(query), optional: []param{sort("comments", "created", "updated", "reactions", "interactions"), order(), page, perPage},
		routes: []string{"GET search/issues?q=repo:{repo} is:pr"}, needs: permissions{"pull_requests": "read"},
		call: func(ctx context.Context, s session, a arguments) (any, error) {
			return searchIssues(ctx, s, a, "is:pr")
		},
	},
}

var (
	elsewhere = regexp.MustCompile(`(?i)(^|[^a-z0-9_])(repo|repository|org|user|owner|enterprise|network|fork)\s*:`)
	hidden    = regexp.MustCompile(`(?i)(^|[^a-z0-9_])(is|visibility)\s*:`)
	operators = regexp.MustCompile(`(?i)(^|[^a-z0-9_])(or|and)([^a-z0-9_]|$)|[()|]`)
)

// badQuery says why a query could look outside of the repository in front of it.
func badQuery(q string) string {
	outside, why := unquoted(q)
	switch {
	case why != "":
		return why
	case elsewhere.MatchString(outside):
		return "names where to search; owner and repo do that"
	case operators.MatchString(outside):
		return "holds OR, AND, | or parentheses, which could reach past the repository; put words in quotes"
	}
	return oneLine(q)
}

func badPublicQuery(q string) string {
	outside, why := unquoted(q)
	switch {
	case why != "":
		return why
	case hidden.MatchString(outside):
		return "says is: or visibility:; only public repositories are searched"
	case operators.MatchString(outside):
		return "holds OR, AND, | or parentheses; put words in quotes"
	}
	return oneLine(q)
}

// unquoted is a query without what stands in quotes. A backslash could make a quote mean something else to GitHub.
func unquoted(q string) (outside, why string) {
	if strings.TrimSpace(q) == "" {
		return "", "is empty"
	}
	if strings.Contains(q, `\`) {
		return "", `holds a \`
	}
	var b strings.Builder
	parts := strings.Split(q, `"`)
	if len(parts)%2 == 0 {
		return "", "leaves a quote open"
	}
	for i, p := range parts {
		if i%2 == 0 {
			b.WriteString(p + " ")
		}
	}
	return b.String(), ""
}

func (a arguments) search() *github.SearchOptions {
	return &github.SearchOptions{Sort: a.Sort, Order: a.Order, ListOptions: a.list()}
}

type found struct {
	Path      string   `json:"path"`
	SHA       string   `json:"sha"`
	Fragments []string `json:"fragments,omitempty"`
	URL       string   `json:"url"`
}

func searchCode(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.search()
	opts.TextMatch = true
	got, resp, err := s.Search.Code(ctx, "repo:"+a.repository()+" "+a.Query, opts)
	if err != nil {
		return nil, err
	}
	inside := only(got.CodeResults, func(r *github.CodeResult) bool {
		return strings.EqualFold(r.GetRepository().GetFullName(), a.repository())
	})
	out := listed(inside, resp, func(c *cutter, r *github.CodeResult) found {
		f := found{Path: r.GetPath(), SHA: r.GetSHA(), URL: r.GetHTMLURL()}
		for _, m := range r.TextMatches {
			f.Fragments = append(f.Fragments, c.text(m.GetFragment(), maxShort))
		}
		return f
	})
	total(out, got.GetTotal(), got.GetIncompleteResults(), len(got.CodeResults)-len(inside))
	return out, nil
}

type repository struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Language    string            `json:"language,omitempty"`
	Stars       int               `json:"stars"`
	Forks       int               `json:"forks"`
	Archived    bool              `json:"archived,omitempty"`
	Pushed      *github.Timestamp `json:"pushed,omitempty"`
	URL         string            `json:"url"`
}

func searchRepositories(ctx context.Context, s session, a arguments) (any, error) {
	got, resp, err := s.Search.Repositories(ctx, "is:public "+a.Query, a.search())
	if err != nil {
		return nil, err
	}
	public := only(got.Repositories, func(r *github.Repository) bool {
		return !r.GetPrivate() && (r.Visibility == nil || r.GetVisibility() == "public")
	})
	out := listed(public, resp, func(c *cutter, r *github.Repository) repository {
		return repository{r.GetFullName(), c.text(r.GetDescription(), maxShort), r.GetLanguage(), r.GetStargazersCount(), r.GetForksCount(), r.GetArchived(), r.PushedAt, r.GetHTMLURL()}
	})
	total(out, got.GetTotal(), got.GetIncompleteResults(), len(got.Repositories)-len(public))
	return out, nil
}

func searchIssues(ctx context.Context, s session, a arguments, kind string) (any, error) {
	got, resp, err := s.Search.Issues(ctx, "repo:"+a.repository()+" "+kind+" "+a.Query, a.search())
	if err != nil {
		return nil, err
	}
	inside := only(got.Issues, func(i *github.Issue) bool { return a.holds(i.GetRepositoryURL()) })
	out := listed(inside, resp, briefIssue)
	total(out, got.GetTotal(), got.GetIncompleteResults(), len(got.Issues)-len(inside))
	return out, nil
}

// holds says whether an API URL is the call's repository.
func (a arguments) holds(repositoryURL string) bool {
	return strings.HasSuffix(strings.ToLower(repositoryURL), strings.ToLower("/repos/"+a.repository()))
}

func only[T any](list []T, keep func(T) bool) []T {
	out := make([]T, 0, len(list))
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// total adds what a search says of itself. A count over what may not be shown is not shown either.
func total[T any](out *shown[T], count int, incomplete bool, outside int) {
	if outside > 0 {
		out.Truncated, out.Note = true, "some results lie outside of what this call may see and are left out"
		return
	}
	out.Total = count
	if incomplete {
		out.Truncated, out.Note = true, "GitHub ended the search early; there may be more"
	}
}
