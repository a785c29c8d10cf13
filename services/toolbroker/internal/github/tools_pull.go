package github

import (
	"context"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/schemas/connection"
)

var pullTools = []tool{
	{
		name: "pull_request_read", effect: connection.Pure, risk: reads,
		about: "Read a pull request: get for itself, get_diff, get_status and get_check_runs of its head, get_files, get_commits, " +
			"get_review_comments, get_reviews, get_comments.",
		required: append([]param{method("get", "get_diff", "get_status", "get_files", "get_commits", "get_review_comments", "get_reviews", "get_comments", "get_check_runs")}, inRepo(pullNumber)...),
		optional: []param{page, perPage, after.told("next_after of the answer before, for get_review_comments")},
		routes: []string{"GET {repo}/pulls/{number}", "GET {repo}/pulls/{number}/files", "GET {repo}/pulls/{number}/commits", "ask POST graphql",
			"GET {repo}/pulls/{number}/reviews", "GET {repo}/issues/{number}/comments", "GET {repo}/commits/{sha}/status", "GET {repo}/commits/{sha}/check-runs"},
		needs: permissions{"pull_requests": "read"},
		by:    map[string]permissions{"get_status": {"pull_requests": "read", "statuses": "read"}, "get_check_runs": {"pull_requests": "read", "checks": "read"}},
		call:  pullRead,
	},
	{
		name: "list_pull_requests", effect: connection.Pure, risk: reads,
		about:    "List pull requests. state is open when left out.",
		required: inRepo(),
		optional: []param{state("open", "closed", "all"), head.told("only from this owner:branch"), base.told("only into this branch"),
			sort("created", "updated", "popularity", "long-running"), order(), page, perPage},
		routes: []string{"GET {repo}/pulls"}, needs: permissions{"pull_requests": "read"},
		call: listPulls,
	},
}

type pull struct {
	Number    int               `json:"number"`
	Title     string            `json:"title"`
	State     string            `json:"state"`
	Draft     bool              `json:"draft"`
	Merged    bool              `json:"merged"`
	Mergeable string            `json:"mergeable_state,omitempty"`
	Author    string            `json:"author"`
	Head      string            `json:"head"`
	HeadSHA   string            `json:"head_sha"`
	HeadRepo  string            `json:"head_repo,omitempty"`
	Base      string            `json:"base"`
	Labels    []string          `json:"labels,omitempty"`
	Reviewers []string          `json:"requested_reviewers,omitempty"`
	Additions int               `json:"additions,omitempty"`
	Deletions int               `json:"deletions,omitempty"`
	Files     int               `json:"changed_files,omitempty"`
	Updated   *github.Timestamp `json:"updated,omitempty"`
	Body      string            `json:"body"`
	URL       string            `json:"url"`
}

func shownPull(c *cutter, p *github.PullRequest, text int) pull {
	out := pull{Number: p.GetNumber(), Title: p.GetTitle(), State: p.GetState(), Draft: p.GetDraft(), Merged: p.GetMerged() || p.MergedAt != nil, Mergeable: p.GetMergeableState(),
		Author: p.GetUser().GetLogin(), Head: p.GetHead().GetRef(), HeadSHA: p.GetHead().GetSHA(), HeadRepo: p.GetHead().GetRepo().GetFullName(), Base: p.GetBase().GetRef(),
		Additions: p.GetAdditions(), Deletions: p.GetDeletions(), Files: p.GetChangedFiles(), Updated: p.UpdatedAt, Body: c.text(p.GetBody(), text), URL: p.GetHTMLURL()}
	for _, l := range p.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	for _, u := range p.RequestedReviewers {
		out.Reviewers = append(out.Reviewers, u.GetLogin())
	}
	return out
}

func briefPull(c *cutter, p *github.PullRequest) pull { return shownPull(c, p, maxShort) }

func wholePull(p *github.PullRequest) (any, error) {
	if p.GetNumber() == 0 {
		return nil, incomplete("pull request")
	}
	return shownPull(new(cutter), p, maxBody), nil
}

type diff struct {
	Diff      string `json:"diff"`
	Bytes     int    `json:"bytes"`
	Truncated bool   `json:"truncated"`
	Note      string `json:"note,omitempty"`
}

type review struct {
	ID        int64             `json:"id"`
	State     string            `json:"state"`
	Author    string            `json:"author"`
	Commit    string            `json:"commit,omitempty"`
	Submitted *github.Timestamp `json:"submitted,omitempty"`
	Body      string            `json:"body"`
	URL       string            `json:"url,omitempty"`
}

func shownReview(c *cutter, r *github.PullRequestReview) review {
	return review{r.GetID(), r.GetState(), r.GetUser().GetLogin(), r.GetCommitID(), r.SubmittedAt, c.text(r.GetBody(), maxLong), r.GetHTMLURL()}
}

type status struct {
	Context     string `json:"context"`
	State       string `json:"state"`
	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
}

type statuses struct {
	SHA   string         `json:"sha"`
	State string         `json:"state"`
	List  *shown[status] `json:"statuses"`
}

type checkRun struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion,omitempty"`
	Summary    string `json:"summary,omitempty"`
	URL        string `json:"url,omitempty"`
}

func pullRead(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.list()
	switch a.Method {
	case "get":
		p, _, err := s.PullRequests.Get(ctx, a.Owner, a.Repo, a.Number)
		if err != nil {
			return nil, err
		}
		return wholePull(p)
	case "get_diff":
		text, _, err := s.PullRequests.GetRaw(ctx, a.Owner, a.Repo, a.Number, github.RawOptions{Type: github.Diff})
		if err != nil {
			return nil, err
		}
		out := diff{Diff: text, Bytes: len(text)}
		if len(text) > maxDiff {
			out.Diff, out.Truncated, out.Note = whole(text[:maxDiff]), true, "the beginning of the diff; get_files gives it file by file"
		}
		return out, nil
	case "get_files":
		list, resp, err := s.PullRequests.ListFiles(ctx, a.Owner, a.Repo, a.Number, &opts)
		if err != nil {
			return nil, err
		}
		return listed(list, resp, shownFileChange(true)), nil
	case "get_commits":
		list, resp, err := s.PullRequests.ListCommits(ctx, a.Owner, a.Repo, a.Number, &opts)
		if err != nil {
			return nil, err
		}
		return listed(list, resp, briefCommit), nil
	case "get_review_comments":
		return reviewThreads(ctx, s, a)
	case "get_reviews":
		list, resp, err := s.PullRequests.ListReviews(ctx, a.Owner, a.Repo, a.Number, &opts)
		if err != nil {
			return nil, err
		}
		return listed(list, resp, shownReview), nil
	case "get_comments":
		list, resp, err := s.Issues.ListComments(ctx, a.Owner, a.Repo, a.Number, &github.IssueListCommentsOptions{ListOptions: opts})
		if err != nil {
			return nil, err
		}
		return listed(list, resp, shownComment), nil
	}
	return pullChecks(ctx, s, a)
}

// pullChecks reads what was found out about the head of a pull request.
func pullChecks(ctx context.Context, s session, a arguments) (any, error) {
	p, _, err := s.PullRequests.Get(ctx, a.Owner, a.Repo, a.Number)
	if err != nil {
		return nil, err
	}
	sha := p.GetHead().GetSHA()
	if !shaPattern.MatchString(sha) { // it goes into a path
		return nil, incomplete("head commit")
	}
	opts := a.list()
	if a.Method == "get_status" {
		got, resp, err := s.Repositories.GetCombinedStatus(ctx, a.Owner, a.Repo, sha, &opts)
		if err != nil {
			return nil, err
		}
		return statuses{sha, got.GetState(), listed(got.Statuses, resp, func(c *cutter, r *github.RepoStatus) status {
			return status{r.GetContext(), r.GetState(), c.text(r.GetDescription(), maxShort), r.GetTargetURL()}
		})}, nil
	}
	got, resp, err := s.Checks.ListCheckRunsForRef(ctx, a.Owner, a.Repo, sha, &github.ListCheckRunsOptions{ListOptions: opts})
	if err != nil {
		return nil, err
	}
	out := listed(got.CheckRuns, resp, func(c *cutter, r *github.CheckRun) checkRun {
		return checkRun{r.GetID(), r.GetName(), r.GetStatus(), r.GetConclusion(), c.text(r.GetOutput().GetSummary(), maxShort), r.GetHTMLURL()}
	})
	out.Total = got.GetTotal()
	return out, nil
}

func listPulls(ctx context.Context, s session, a arguments) (any, error) {
	from := a.Head
	if from != "" && !strings.Contains(from, ":") {
		from = a.Owner + ":" + from // GitHub leaves a head without an owner out of account
	}
	list, resp, err := s.PullRequests.List(ctx, a.Owner, a.Repo, &github.PullRequestListOptions{State: a.State, Head: from, Base: a.Base, Sort: a.Sort, Direction: a.Order, ListOptions: a.list()})
	if err != nil {
		return nil, err
	}
	return listed(list, resp, briefPull), nil
}
