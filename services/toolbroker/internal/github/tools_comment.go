package github

import (
	"context"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var (
	lineNumber = of("line", aNum, "", func(a *arguments) *int { return &a.Line }, number(1, maxNumber))
	startLine  = of("startLine", aNum, "first line of a range", func(a *arguments) *int { return &a.StartLine }, number(1, maxNumber)).also("start_line")
)

var reviewTools = append(pullWriteTools,
	tool{
		name: "pull_request_review_write", effect: connection.Probeable, risk: changes,
		about: "Review a pull request: create (with event: submitted at once; without: pending), submit_pending, delete_pending, " +
			"resolve_thread and unresolve_thread. APPROVE may let the pull request be merged.",
		required: append([]param{method("create", "submit_pending", "delete_pending", "resolve_thread", "unresolve_thread")}, inRepo(pullNumber)...),
		optional: []param{body, event("for create and submit_pending", "APPROVE", "REQUEST_CHANGES", "COMMENT"),
			of("commitID", aText, "commit to review; the head when left out", func(a *arguments) *string { return &a.SHA }, shaHex).also("commit_id"),
			of("threadId", aText, "node id, for resolve_thread and unresolve_thread", func(a *arguments) *string { return &a.Thread }, nodeID).also("thread_id")},
		routes: []string{"GET {repo}/pulls/{number}/reviews", "POST {repo}/pulls/{number}/reviews", "POST {repo}/pulls/{number}/reviews/{number}/events",
			"DELETE {repo}/pulls/{number}/reviews/{number}", "POST graphql"},
		needs: permissions{"pull_requests": "write"},
		call:  reviewWrite, probe: findReview,
	},
	tool{
		name: "add_comment_to_pending_review", effect: connection.Probeable, risk: adds,
		about:    "Add a comment on a file, or on lines of it, to your pending review of a pull request. pull_request_review_write makes one.",
		required: inRepo(pullNumber, path, of("body", aText, "Markdown", func(a *arguments) *string { return &a.Body }, filled)),
		optional: []param{choice("subjectType", "LINE when left out", func(a *arguments) *string { return &a.SubjectType }, "LINE", "FILE").also("subject_type"), lineNumber,
			side("side", func(a *arguments) *string { return &a.Side }), startLine,
			side("startSide", func(a *arguments) *string { return &a.StartSide }).also("start_side")},
		routes: []string{"GET {repo}/pulls/{number}/reviews", "GET {repo}/pulls/{number}/reviews/{number}/comments", "POST graphql"},
		needs:  permissions{"pull_requests": "write"},
		call:   addPendingComment, probe: findPendingComment,
	},
	tool{
		name: "add_reply_to_pull_request_comment", effect: connection.Probeable, risk: adds,
		about:    "Reply to a review comment of a pull request.",
		required: inRepo(pullNumber, commentID, of("body", aText, "Markdown", func(a *arguments) *string { return &a.Body }, filled)),
		routes:   []string{"POST {repo}/pulls/{number}/comments", "GET {repo}/pulls/{number}/comments"},
		needs:    permissions{"pull_requests": "write"},
		call:     replyToComment, probe: findReply,
	},
)

type reviewComment struct {
	ID        int64  `json:"id"`
	InReplyTo int64  `json:"in_reply_to,omitempty"`
	Author    string `json:"author"`
	Path      string `json:"path"`
	Line      int    `json:"line,omitempty"`
	Side      string `json:"side,omitempty"`
	Body      string `json:"body"`
	URL       string `json:"url"`
}

func shownReviewComment(c *cutter, r *github.PullRequestComment) reviewComment {
	return reviewComment{r.GetID(), r.GetInReplyTo(), r.GetUser().GetLogin(), r.GetPath(), r.GetLine(), r.GetSide(), c.text(r.GetBody(), maxLong), r.GetHTMLURL()}
}

// pendingReview is the caller's own pending review of a pull request: GitHub shows nobody another's.
func pendingReview(ctx context.Context, s session, a arguments) (*github.PullRequestReview, error) {
	found, ok, err := look(ctx, func(o github.ListOptions) ([]*github.PullRequestReview, *github.Response, error) {
		return s.PullRequests.ListReviews(ctx, a.Owner, a.Repo, a.Number, &o)
	}, func(r *github.PullRequestReview) (any, bool) { return r, r.GetState() == "PENDING" })
	if err != nil || !ok {
		return nil, err
	}
	return found.(*github.PullRequestReview), nil
}

var errNoPending = &refusal{Text: "there is no pending review; pull_request_review_write with method create and no event makes one"}

const addThread = `mutation($in: AddPullRequestReviewThreadInput!) { addPullRequestReviewThread(input: $in) { thread { id path line } } }`

// addThreadInput has what GraphQL's AddPullRequestReviewThreadInput has.
type addThreadInput struct {
	Review      string `json:"pullRequestReviewId"`
	Path        string `json:"path"`
	Body        string `json:"body"`
	SubjectType string `json:"subjectType"`
	Line        int    `json:"line,omitempty"`
	Side        string `json:"side,omitempty"`
	StartLine   int    `json:"startLine,omitempty"`
	StartSide   string `json:"startSide,omitempty"`
}

type threadInput[T any] struct {
	In T `json:"in"`
}

type pendingComment struct {
	Thread string `json:"thread"`
	Path   string `json:"path"`
	Line   int    `json:"line,omitempty"`
}

func addPendingComment(ctx context.Context, s session, a arguments) (any, error) {
	kind := a.SubjectType
	if kind == "" {
		kind = "LINE"
	}
	switch {
	case a.Path == "":
		return nil, problem.New(problem.Invalid, "argument path is empty")
	case kind == "LINE" && a.Line == 0:
		return nil, problem.New(problem.Invalid, "argument line is missing, which a comment on lines needs; subjectType FILE comments on the file")
	}
	pending, err := pendingReview(ctx, s, a)
	if err != nil {
		return nil, err
	}
	if pending == nil {
		return nil, errNoPending
	}
	in := addThreadInput{Review: pending.GetNodeID(), Path: a.Path, Body: a.Body + "\n\n" + s.marker(), SubjectType: kind}
	if kind == "LINE" {
		in.Line, in.Side, in.StartLine, in.StartSide = a.Line, a.Side, a.StartLine, a.StartSide
	}
	type answer struct {
		Add struct {
			Thread struct {
				ID   string `json:"id"`
				Path string `json:"path"`
				Line int    `json:"line"`
			} `json:"thread"`
		} `json:"addPullRequestReviewThread"`
	}
	got, err := graphql[answer](ctx, s, addThread, threadInput[addThreadInput]{in})
	if err != nil {
		return nil, err
	}
	t := got.Add.Thread
	if t.ID == "" { // GitHub answers so, without an error, for a line that is not in the diff
		return nil, &refusal{Text: "GitHub made no comment: is the line part of the diff?"}
	}
	return pendingComment{t.ID, t.Path, t.Line}, nil
}

func findPendingComment(ctx context.Context, s session, a arguments) (any, bool, error) {
	pending, err := pendingReview(ctx, s, a)
	if err != nil || pending == nil {
		return nil, false, err
	}
	return look(ctx, func(o github.ListOptions) ([]*github.PullRequestComment, *github.Response, error) {
		return s.PullRequests.ListReviewComments(ctx, a.Owner, a.Repo, a.Number, pending.GetID(), &o)
	}, func(c *github.PullRequestComment) (any, bool) {
		return pendingComment{c.GetNodeID(), c.GetPath(), c.GetLine()}, strings.Contains(c.GetBody(), s.marker())
	})
}

func replyToComment(ctx context.Context, s session, a arguments) (any, error) {
	made, _, err := s.PullRequests.CreateCommentInReplyTo(ctx, a.Owner, a.Repo, a.Number, a.Body+"\n\n"+s.marker(), a.Comment)
	if err != nil {
		return nil, err
	}
	if made.GetID() == 0 {
		return nil, incomplete("comment")
	}
	return shownReviewComment(new(cutter), made), nil
}

func findReply(ctx context.Context, s session, a arguments) (any, bool, error) {
	return look(ctx, func(o github.ListOptions) ([]*github.PullRequestComment, *github.Response, error) {
		return s.PullRequests.ListComments(ctx, a.Owner, a.Repo, a.Number, &github.PullRequestListCommentsOptions{Sort: "created", Direction: "desc", ListOptions: o})
	}, func(c *github.PullRequestComment) (any, bool) {
		return shownReviewComment(new(cutter), c), strings.Contains(c.GetBody(), s.marker())
	})
}
