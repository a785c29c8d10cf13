package github

import (
	"context"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var issueTools = []tool{
	{
		name: "issue_read", effect: connection.Pure, risk: reads,
		about:    "Read an issue: get for itself, get_comments, get_sub_issues, get_parent, get_labels.",
		required: append([]param{method("get", "get_comments", "get_sub_issues", "get_parent", "get_labels")}, inRepo(issueNumber)...),
		optional: []param{page, perPage},
		routes: []string{"GET {repo}/issues/{number}", "GET {repo}/issues/{number}/comments", "GET {repo}/issues/{number}/sub_issues",
			"GET {repo}/issues/{number}/parent", "GET {repo}/issues/{number}/labels"},
		needs: permissions{"issues": "read"},
		call:  issueRead,
	},
	{
		name: "list_issues", effect: connection.Pure, risk: reads,
		about:    "List issues, without pull requests. state is open when left out.",
		required: inRepo(),
		optional: []param{state("open", "closed", "all"), labels.told("only issues with all of these"), of("assignee", aText, "", func(a *arguments) *string { return &a.Actor }, userName),
			since.told("only issues changed since"), sort("created", "updated", "comments"), order(), page, perPage, after},
		routes: []string{"GET {repo}/issues"}, needs: permissions{"issues": "read"},
		call: listIssues,
	},
	{
		name: "issue_write", effect: connection.Probeable, risk: changes,
		about:    "Create an issue, or update one: only what is given changes; labels and assignees are replaced as a whole.",
		required: append([]param{method("create", "update")}, inRepo()...),
		optional: []param{issueNumber.told("for update"), title.told("needed for create"), body, labels, assignees,
			of("milestone", aNum, "its number", func(a *arguments) *int { return &a.Milestone }, number(1, maxNumber)),
			state("open", "closed"), choice("state_reason", "", func(a *arguments) *string { return &a.StateReason }, "completed", "not_planned", "reopened")},
		routes: []string{"POST {repo}/issues", "PATCH {repo}/issues/{number}", "GET {repo}/issues/{number}", "GET {repo}/issues"},
		needs:  permissions{"issues": "write"},
		call:   issueWrite, probe: findIssue,
	},
	{
		name: "add_issue_comment", effect: connection.Probeable, risk: adds,
		about:    "Add a comment to an issue or pull request.",
		required: inRepo(issueNumber, of("body", aText, "Markdown", func(a *arguments) *string { return &a.Body }, filled)),
		routes:   []string{"POST {repo}/issues/{number}/comments", "GET {repo}/issues/{number}/comments"},
		needs:    permissions{"issues": "write"},
		call:     addComment, probe: findComment,
	},
}

type issue struct {
	Number      int               `json:"number"`
	Title       string            `json:"title"`
	State       string            `json:"state"`
	Reason      string            `json:"state_reason,omitempty"`
	Author      string            `json:"author"`
	Association string            `json:"author_association,omitempty"`
	Labels      []string          `json:"labels,omitempty"`
	Assignees   []string          `json:"assignees,omitempty"`
	Milestone   string            `json:"milestone,omitempty"`
	Comments    int               `json:"comments"`
	Created     *github.Timestamp `json:"created,omitempty"`
	Updated     *github.Timestamp `json:"updated,omitempty"`
	Body        string            `json:"body"`
	URL         string            `json:"url"`
}

func shownIssue(c *cutter, i *github.Issue, text int) issue {
	out := issue{Number: i.GetNumber(), Title: i.GetTitle(), State: i.GetState(), Reason: i.GetStateReason(), Author: i.GetUser().GetLogin(),
		Association: i.GetAuthorAssociation(), Milestone: i.GetMilestone().GetTitle(), Comments: i.GetComments(), Created: i.CreatedAt, Updated: i.UpdatedAt,
		Body: c.text(i.GetBody(), text), URL: i.GetHTMLURL()}
	for _, l := range i.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	for _, u := range i.Assignees {
		out.Assignees = append(out.Assignees, u.GetLogin())
	}
	return out
}

func briefIssue(c *cutter, i *github.Issue) issue { return shownIssue(c, i, maxShort) }

// wholeIssue is the answer about one issue. The library takes an empty answer for an empty issue.
func wholeIssue(i *github.Issue) (any, error) {
	if i.GetNumber() == 0 {
		return nil, incomplete("issue")
	}
	return shownIssue(new(cutter), i, maxBody), nil
}

type comment struct {
	ID      int64             `json:"id"`
	Author  string            `json:"author"`
	Created *github.Timestamp `json:"created,omitempty"`
	Body    string            `json:"body"`
	URL     string            `json:"url"`
}

func shownComment(c *cutter, from *github.IssueComment) comment {
	return comment{from.GetID(), from.GetUser().GetLogin(), from.CreatedAt, c.text(from.GetBody(), maxLong), from.GetHTMLURL()}
}

func issueRead(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.list()
	switch a.Method {
	case "get":
		i, _, err := s.Issues.Get(ctx, a.Owner, a.Repo, a.Number)
		if err != nil {
			return nil, err
		}
		return wholeIssue(i)
	case "get_comments":
		list, resp, err := s.Issues.ListComments(ctx, a.Owner, a.Repo, a.Number, &github.IssueListCommentsOptions{ListOptions: opts})
		if err != nil {
			return nil, err
		}
		return listed(list, resp, shownComment), nil
	case "get_labels":
		list, resp, err := s.Issues.ListLabelsByIssue(ctx, a.Owner, a.Repo, a.Number, &opts)
		if err != nil {
			return nil, err
		}
		return listed(list, resp, func(_ *cutter, l *github.Label) string { return l.GetName() }), nil
	case "get_parent":
		i, _, err := get[*github.Issue](ctx, s, a.at("/issues/%d/parent", a.Number), nil)
		switch {
		case err != nil:
			return nil, err
		case !a.holds(i.GetRepositoryURL()):
			return nil, &refusal{Text: "the parent is in another repository, which this call may not see"}
		}
		return wholeIssue(i)
	}
	list, resp, err := get[[]*github.Issue](ctx, s, a.at("/issues/%d/sub_issues", a.Number), pages(opts))
	if err != nil {
		return nil, err
	}
	inside := only(list, func(i *github.Issue) bool { return a.holds(i.GetRepositoryURL()) })
	out := listed(inside, resp, briefIssue)
	if len(inside) < len(list) {
		out.Truncated, out.Note = true, "sub-issues in other repositories are left out"
	}
	return out, nil
}

func listIssues(ctx context.Context, s session, a arguments) (any, error) {
	q := pages(a.list())
	for name, v := range map[string]string{"state": a.State, "labels": strings.Join(a.Labels, ","), "assignee": a.Actor, "sort": a.Sort, "direction": a.Order, "after": a.After} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if !a.Since.IsZero() {
		q.Set("since", a.Since.Format(time.RFC3339))
	}
	list, resp, err := get[[]*github.Issue](ctx, s, a.at("/issues"), q)
	if err != nil {
		return nil, err
	}
	// GitHub lists pull requests among the issues.
	return listed(only(list, func(i *github.Issue) bool { return !i.IsPullRequest() }), resp, briefIssue), nil
}

func issueWrite(ctx context.Context, s session, a arguments) (any, error) {
	request := &github.IssueRequest{Title: optional(a, "title", a.Title), Body: optional(a, "body", a.Body), State: optional(a, "state", a.State),
		StateReason: optional(a, "state_reason", a.StateReason), Milestone: optional(a, "milestone", a.Milestone),
		Labels: optional(a, "labels", a.Labels), Assignees: optional(a, "assignees", a.Assignees)}
	if a.Method == "update" {
		if !a.has("issue_number") {
			return nil, problem.New(problem.Invalid, "argument issue_number is missing, which method update needs")
		}
		i, _, err := s.Issues.Edit(ctx, a.Owner, a.Repo, a.Number, request)
		if err != nil {
			return nil, err
		}
		return wholeIssue(i)
	}
	switch {
	case !a.has("title"):
		return nil, problem.New(problem.Invalid, "argument title is missing, which method create needs")
	case a.has("issue_number") || a.has("state") || a.has("state_reason"):
		return nil, problem.New(problem.Invalid, "method create takes no issue_number, state or state_reason")
	}
	request.Body = github.String(a.Body + "\n\n" + s.marker())
	i, _, err := s.Issues.Create(ctx, a.Owner, a.Repo, request)
	if err != nil {
		return nil, err
	}
	return wholeIssue(i)
}

// findIssue looks for the issue with the call's marker, or for the changes in the issue.
func findIssue(ctx context.Context, s session, a arguments) (any, bool, error) {
	if a.Method == "update" {
		if !a.has("issue_number") {
			return nil, false, nil
		}
		i, _, err := s.Issues.Get(ctx, a.Owner, a.Repo, a.Number)
		if err != nil || !a.describes(i) {
			return nil, false, err
		}
		out, err := wholeIssue(i)
		return out, err == nil, err
	}
	return look(ctx, func(o github.ListOptions) ([]*github.Issue, *github.Response, error) {
		return s.Issues.ListByRepo(ctx, a.Owner, a.Repo, &github.IssueListByRepoOptions{State: "all", Sort: "created", Direction: "desc", Since: time.Now().Add(-lookBack), ListOptions: o})
	}, func(i *github.Issue) (any, bool) {
		return shownIssue(new(cutter), i, maxBody), strings.Contains(i.GetBody(), s.marker())
	})
}

// describes says whether an issue is as an update would make it.
func (a arguments) describes(i *github.Issue) bool {
	now := shownIssue(new(cutter), i, maxText)
	return (!a.has("title") || now.Title == a.Title) && (!a.has("body") || strings.TrimSpace(i.GetBody()) == strings.TrimSpace(a.Body)) &&
		(!a.has("state") || now.State == a.State) && (!a.has("state_reason") || now.Reason == a.StateReason) &&
		(!a.has("milestone") || i.GetMilestone().GetNumber() == a.Milestone) &&
		(!a.has("labels") || sameWords(now.Labels, a.Labels)) && (!a.has("assignees") || sameWords(now.Assignees, a.Assignees))
}

func addComment(ctx context.Context, s session, a arguments) (any, error) {
	made, _, err := s.Issues.CreateComment(ctx, a.Owner, a.Repo, a.Number, &github.IssueComment{Body: github.String(a.Body + "\n\n" + s.marker())})
	if err != nil {
		return nil, err
	}
	if made.GetID() == 0 {
		return nil, incomplete("comment")
	}
	return shownComment(new(cutter), made), nil
}

// findComment looks for the comment that an earlier attempt may have left.
func findComment(ctx context.Context, s session, a arguments) (any, bool, error) {
	since := time.Now().Add(-lookBack)
	return look(ctx, func(o github.ListOptions) ([]*github.IssueComment, *github.Response, error) {
		return s.Issues.ListComments(ctx, a.Owner, a.Repo, a.Number, &github.IssueListCommentsOptions{Since: &since, ListOptions: o})
	}, func(c *github.IssueComment) (any, bool) {
		return shownComment(new(cutter), c), strings.Contains(c.GetBody(), s.marker())
	})
}
