package github

import (
	"context"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
)

func reviewWrite(ctx context.Context, s session, a arguments) (any, error) {
	request := &github.PullRequestReviewRequest{CommitID: optional(a, "commitID", a.SHA), Event: optional(a, "event", a.ReviewEvent), Body: github.String(strings.TrimSpace(a.Body + "\n\n" + s.marker()))}
	switch a.Method {
	case "create":
		r, _, err := s.PullRequests.CreateReview(ctx, a.Owner, a.Repo, a.Number, request)
		return wholeReview(r, err)
	case "submit_pending", "delete_pending":
		if a.Method == "submit_pending" && !a.has("event") {
			return nil, problem.New(problem.Invalid, "argument event is missing, which method submit_pending needs")
		}
		pending, err := pendingReview(ctx, s, a)
		if err != nil {
			return nil, err
		}
		if pending == nil {
			return nil, errNoPending
		}
		if a.Method == "delete_pending" {
			r, _, err := s.PullRequests.DeletePendingReview(ctx, a.Owner, a.Repo, a.Number, pending.GetID())
			return wholeReview(r, err)
		}
		r, _, err := s.PullRequests.SubmitReview(ctx, a.Owner, a.Repo, a.Number, pending.GetID(), request)
		return wholeReview(r, err)
	}
	return resolveThread(ctx, s, a)
}

func wholeReview(r *github.PullRequestReview, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if r.GetID() == 0 {
		return nil, incomplete("review")
	}
	return shownReview(new(cutter), r), nil
}

// findReview looks for what each method leaves behind: a review with the call's marker, no pending review, a thread in
// the state that was wanted.
func findReview(ctx context.Context, s session, a arguments) (any, bool, error) {
	switch a.Method {
	case "create", "submit_pending":
		return look(ctx, func(o github.ListOptions) ([]*github.PullRequestReview, *github.Response, error) {
			return s.PullRequests.ListReviews(ctx, a.Owner, a.Repo, a.Number, &o)
		}, func(r *github.PullRequestReview) (any, bool) {
			return shownReview(new(cutter), r), strings.Contains(r.GetBody(), s.marker()) && (a.Method == "create" || r.GetState() != "PENDING")
		})
	case "delete_pending":
		pending, err := pendingReview(ctx, s, a)
		return done{Done: "there is no pending review"}, err == nil && pending == nil, err
	}
	if !a.has("threadId") {
		return nil, false, nil
	}
	t, err := reviewThread(ctx, s, a)
	return t, err == nil && t.Resolved == (a.Method == "resolve_thread"), err
}
