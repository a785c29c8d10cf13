package github

import (
	"context"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/schemas/connection"
)

var historyTools = []tool{
	{
		name: "list_commits", effect: connection.Pure, risk: reads,
		about:    "List commits, the newest first.",
		required: inRepo(),
		optional: []param{
			of("sha", aText, "branch, tag or commit to start from", func(a *arguments) *string { return &a.Ref }, refName).also("ref", "branch"),
			path.told("only commits that touch this path"), of("author", aText, "", func(a *arguments) *string { return &a.Author }, userName),
			since, of("until", aTime, "", func(a *arguments) *time.Time { return &a.Until }, moment), page, perPage,
		},
		routes: []string{"GET {repo}/commits"}, needs: permissions{"contents": "read"},
		call: listCommits,
	},
	{
		name: "get_commit", effect: connection.Pure, risk: reads,
		about:    "Read a commit. detail: none for its message, stats for its files (the default), full_patch for their changes too.",
		required: inRepo(of("sha", aText, "commit, branch or tag", func(a *arguments) *string { return &a.Ref }, refName).also("ref")),
		optional: []param{choice("detail", "", func(a *arguments) *string { return &a.Detail }, "none", "stats", "full_patch"), page, perPage},
		routes:   []string{"GET {repo}/commits/{ref...}"}, needs: permissions{"contents": "read"},
		call: getCommit,
	},
	{
		name: "list_branches", effect: connection.Pure, risk: reads,
		about:    "List branches and the commits that they are at.",
		required: inRepo(), optional: []param{page, perPage},
		routes: []string{"GET {repo}/branches"}, needs: permissions{"contents": "read"},
		call: listBranches,
	},
	{
		name: "list_releases", effect: connection.Pure, risk: reads,
		about:    "List releases, the newest first.",
		required: inRepo(), optional: []param{page, perPage},
		routes: []string{"GET {repo}/releases"}, needs: permissions{"contents": "read"},
		call: listReleases,
	},
}

type commit struct {
	SHA       string            `json:"sha"`
	Message   string            `json:"message"`
	Author    string            `json:"author"`
	Date      *github.Timestamp `json:"date,omitempty"`
	Parents   []string          `json:"parents,omitempty"`
	Additions int               `json:"additions,omitempty"`
	Deletions int               `json:"deletions,omitempty"`
	Files     *shown[changed]   `json:"files,omitempty"`
	URL       string            `json:"url"`
}

// shrink drops files.
func (c *commit) shrink() bool { return c.Files != nil && c.Files.shrink() }

type changed struct {
	Path      string `json:"path"`
	Was       string `json:"was,omitempty"`
	Status    string `json:"status"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Patch     string `json:"patch,omitempty"`
}

func shownCommit(c *cutter, from *github.RepositoryCommit, message int) commit {
	out := commit{SHA: from.GetSHA(), Message: c.text(from.GetCommit().GetMessage(), message), Author: from.GetAuthor().GetLogin(), URL: from.GetHTMLURL()}
	by := from.GetCommit().GetAuthor()
	if out.Author == "" {
		out.Author = by.GetName()
	}
	if by != nil {
		out.Date = by.Date
	}
	for _, p := range from.Parents {
		out.Parents = append(out.Parents, p.GetSHA())
	}
	return out
}

func briefCommit(c *cutter, from *github.RepositoryCommit) commit {
	return shownCommit(c, from, maxShort)
}

func shownFileChange(patches bool) func(*cutter, *github.CommitFile) changed {
	return func(c *cutter, f *github.CommitFile) changed {
		out := changed{Path: f.GetFilename(), Was: f.GetPreviousFilename(), Status: f.GetStatus(), Additions: f.GetAdditions(), Deletions: f.GetDeletions()}
		if patches {
			out.Patch = c.text(f.GetPatch(), maxLong)
		}
		return out
	}
}

func listCommits(ctx context.Context, s session, a arguments) (any, error) {
	list, resp, err := s.Repositories.ListCommits(ctx, a.Owner, a.Repo, &github.CommitsListOptions{
		SHA: a.Ref, Path: a.Path, Author: a.Author, Since: a.Since, Until: a.Until, ListOptions: a.list(),
	})
	if err != nil {
		return nil, err
	}
	return listed(list, resp, briefCommit), nil
}

func getCommit(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.list()
	got, resp, err := get[*github.RepositoryCommit](ctx, s, a.at("/commits/%s", escaped(a.Ref)), pages(opts))
	if err != nil {
		return nil, err
	}
	var c cutter
	out := shownCommit(&c, got, maxBody)
	if out.SHA == "" {
		return nil, incomplete("commit")
	}
	if a.Detail != "none" {
		out.Additions, out.Deletions = got.GetStats().GetAdditions(), got.GetStats().GetDeletions()
		out.Files = listed(got.Files, resp, shownFileChange(a.Detail == "full_patch"))
	}
	return &out, nil
}

type branchAt struct {
	Name      string `json:"name"`
	SHA       string `json:"sha"`
	Protected bool   `json:"protected"`
}

func listBranches(ctx context.Context, s session, a arguments) (any, error) {
	list, resp, err := s.Repositories.ListBranches(ctx, a.Owner, a.Repo, &github.BranchListOptions{ListOptions: a.list()})
	if err != nil {
		return nil, err
	}
	return listed(list, resp, func(_ *cutter, b *github.Branch) branchAt {
		return branchAt{b.GetName(), b.GetCommit().GetSHA(), b.GetProtected()}
	}), nil
}

type release struct {
	Tag        string            `json:"tag"`
	Name       string            `json:"name"`
	Draft      bool              `json:"draft,omitempty"`
	Prerelease bool              `json:"prerelease,omitempty"`
	Published  *github.Timestamp `json:"published,omitempty"`
	Body       string            `json:"body"`
	URL        string            `json:"url"`
}

func listReleases(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.list()
	list, resp, err := s.Repositories.ListReleases(ctx, a.Owner, a.Repo, &opts)
	if err != nil {
		return nil, err
	}
	return listed(list, resp, func(c *cutter, r *github.RepositoryRelease) release {
		return release{r.GetTagName(), r.GetName(), r.GetDraft(), r.GetPrerelease(), r.PublishedAt, c.text(r.GetBody(), maxShort), r.GetHTMLURL()}
	}), nil
}
