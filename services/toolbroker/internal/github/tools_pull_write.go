package github

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var (
	draft     = of("draft", aBool, "", func(a *arguments) *bool { return &a.Draft }, boolean)
	modify    = of("maintainer_can_modify", aBool, "", func(a *arguments) *bool { return &a.MaintainerCanModify }, boolean)
	reviewers = of("reviewers", aList, "user names to ask for a review", func(a *arguments) *[]string { return &a.Reviewers }, each(15, userName))
)

var pullWriteTools = []tool{
	{
		name: "create_pull_request", effect: connection.Probeable, risk: adds,
		about:    "Open a pull request.",
		required: inRepo(title, head, base), optional: []param{body, draft, modify},
		routes: []string{"POST {repo}/pulls", "GET {repo}/pulls"}, needs: permissions{"pull_requests": "write", "contents": "read"},
		call: createPull, probe: findPull,
	},
	{
		name: "update_pull_request", effect: connection.Probeable, risk: changes,
		about:    "Change a pull request: only what is given changes; reviewers are added.",
		required: inRepo(pullNumber), optional: []param{title, body, state("open", "closed"), base, modify, reviewers},
		routes: []string{"PATCH {repo}/pulls/{number}", "POST {repo}/pulls/{number}/requested_reviewers", "GET {repo}/pulls/{number}"},
		needs:  permissions{"pull_requests": "write"},
		call:   updatePull, probe: findPullChanges,
	},
	{
		name: "update_pull_request_branch", effect: connection.Opaque, risk: changes,
		about:    "Merge the base branch into the branch of a pull request.",
		required: inRepo(pullNumber), optional: []param{headSHA},
		routes: []string{"PUT {repo}/pulls/{number}/update-branch"}, needs: permissions{"pull_requests": "write", "contents": "write"},
		call: updatePullBranch,
	},
	{
		name: "merge_pull_request", effect: connection.Probeable, risk: destructive,
		about:    "Merge a pull request. expectedHeadSha is the head_sha that you have looked at: what was pushed since is not merged unseen.",
		required: inRepo(pullNumber, headSHA), // what a person approves names the commits that they approve
		optional: []param{choice("merge_method", "", func(a *arguments) *string { return &a.MergeMethod }, "merge", "squash", "rebase"),
			of("commit_title", aText, "", func(a *arguments) *string { return &a.CommitTitle }, line),
			of("commit_message", aText, "", func(a *arguments) *string { return &a.Message }, prose)},
		routes: []string{"PUT {repo}/pulls/{number}/merge", "GET {repo}/pulls/{number}"}, needs: permissions{"pull_requests": "write", "contents": "write"},
		call: mergePull, probe: findMerge,
	},
}

func createPull(ctx context.Context, s session, a arguments) (any, error) {
	p, _, err := s.PullRequests.Create(ctx, a.Owner, a.Repo, &github.NewPullRequest{Title: &a.Title, Head: &a.Head, Base: &a.Base,
		Body: github.String(a.Body + "\n\n" + s.marker()), Draft: optional(a, "draft", a.Draft), MaintainerCanModify: optional(a, "maintainer_can_modify", a.MaintainerCanModify)})
	if err != nil {
		return nil, err
	}
	return wholePull(p)
}

func findPull(ctx context.Context, s session, a arguments) (any, bool, error) {
	return look(ctx, func(o github.ListOptions) ([]*github.PullRequest, *github.Response, error) {
		return s.PullRequests.List(ctx, a.Owner, a.Repo, &github.PullRequestListOptions{State: "all", Base: a.Base, Sort: "created", Direction: "desc", ListOptions: o})
	}, func(p *github.PullRequest) (any, bool) {
		return shownPull(new(cutter), p, maxBody), strings.Contains(p.GetBody(), s.marker())
	})
}

// changesPull says whether the call changes the pull request itself.
func (a arguments) changesPull() bool {
	return a.has("title") || a.has("body") || a.has("state") || a.has("base") || a.has("maintainer_can_modify")
}

func updatePull(ctx context.Context, s session, a arguments) (any, error) {
	if !a.changesPull() && len(a.Reviewers) == 0 {
		return nil, problem.New(problem.Invalid, "nothing to change is given")
	}
	var p *github.PullRequest
	var err error
	if a.changesPull() {
		change := &github.PullRequest{Title: optional(a, "title", a.Title), Body: optional(a, "body", a.Body), State: optional(a, "state", a.State),
			MaintainerCanModify: optional(a, "maintainer_can_modify", a.MaintainerCanModify)}
		if a.has("base") {
			change.Base = &github.PullRequestBranch{Ref: &a.Base}
		}
		if p, _, err = s.PullRequests.Edit(ctx, a.Owner, a.Repo, a.Number, change); err != nil {
			return nil, err
		}
	}
	if len(a.Reviewers) > 0 {
		asked, _, err := s.PullRequests.RequestReviewers(ctx, a.Owner, a.Repo, a.Number, github.ReviewersRequest{Reviewers: a.Reviewers})
		if no := refusedWith(err, 403, 404, 422); no != nil && p != nil {
			return nil, &refusal{Text: "the pull request was changed, but the reviewers were not asked: " + saidNo(no)}
		}
		if err != nil {
			return nil, err
		}
		p = asked
	}
	return wholePull(p)
}

func findPullChanges(ctx context.Context, s session, a arguments) (any, bool, error) {
	p, _, err := s.PullRequests.Get(ctx, a.Owner, a.Repo, a.Number)
	if err != nil {
		return nil, false, err
	}
	now := shownPull(new(cutter), p, maxText)
	same := (!a.has("title") || now.Title == a.Title) && (!a.has("body") || strings.TrimSpace(p.GetBody()) == strings.TrimSpace(a.Body)) &&
		(!a.has("state") || now.State == a.State) && (!a.has("base") || now.Base == a.Base) &&
		(!a.has("maintainer_can_modify") || p.GetMaintainerCanModify() == a.MaintainerCanModify) &&
		sameWords(append(now.Reviewers, a.Reviewers...), now.Reviewers)
	if !same {
		return nil, false, nil
	}
	out, err := wholePull(p)
	return out, err == nil, err
}

// done is the answer of a tool that has nothing else to show.
type done struct {
	Done string `json:"done"`
	SHA  string `json:"sha,omitempty"`
	URL  string `json:"url,omitempty"`
}

func updatePullBranch(ctx context.Context, s session, a arguments) (any, error) {
	_, _, err := s.PullRequests.UpdateBranch(ctx, a.Owner, a.Repo, a.Number, &github.PullRequestBranchUpdateOptions{ExpectedHeadSHA: optional(a, "expectedHeadSha", a.HeadSHA)})
	var accepted *github.AcceptedError // how the library puts what GitHub will do presently
	if err != nil && !errors.As(err, &accepted) {
		return nil, err
	}
	return done{Done: "GitHub is updating the branch; read the pull request for its new head"}, nil
}

func mergePull(ctx context.Context, s session, a arguments) (any, error) {
	got, _, err := s.PullRequests.Merge(ctx, a.Owner, a.Repo, a.Number, a.Message, &github.PullRequestOptions{CommitTitle: a.CommitTitle, SHA: a.HeadSHA, MergeMethod: a.MergeMethod})
	if no := refusedWith(err, http.StatusConflict); no != nil {
		return nil, hinted(no, "the head is not at expectedHeadSha any more: look at what was pushed before you merge it")
	}
	if err != nil {
		return nil, err
	}
	if !got.GetMerged() || got.GetSHA() == "" {
		return nil, incomplete("merge")
	}
	return done{Done: "merged", SHA: got.GetSHA()}, nil
}

func findMerge(ctx context.Context, s session, a arguments) (any, bool, error) {
	p, _, err := s.PullRequests.Get(ctx, a.Owner, a.Repo, a.Number)
	if err != nil || !p.GetMerged() {
		return nil, false, err
	}
	return done{Done: "merged", SHA: p.GetMergeCommitSHA()}, true, nil
}
