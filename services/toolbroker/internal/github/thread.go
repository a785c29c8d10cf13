package github

import (
	"context"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
)

// thread is the state of a thread of review comments.
type thread struct {
	Thread   string `json:"thread"`
	Resolved bool   `json:"resolved"`
}

const readThread = `query($id: ID!) { node(id: $id) { ... on PullRequestReviewThread { id isResolved pullRequest { number repository { nameWithOwner } } } } }`

type threadID struct {
	ID string `json:"id"`
}

// reviewThread reads a thread, which has to be in the call's pull request: its id says nothing of where it is, and no
// path bounds a GraphQL request.
func reviewThread(ctx context.Context, s session, a arguments) (thread, error) {
	type answer struct {
		Node struct {
			ID         string `json:"id"`
			IsResolved bool   `json:"isResolved"`
			Pull       struct {
				Number     int `json:"number"`
				Repository struct {
					Name string `json:"nameWithOwner"`
				} `json:"repository"`
			} `json:"pullRequest"`
		} `json:"node"`
	}
	got, err := ask[answer](ctx, s, readThread, threadID{a.Thread})
	if err != nil {
		return thread{}, err
	}
	n := got.Node
	if n.ID == "" || n.Pull.Number != a.Number || !strings.EqualFold(n.Pull.Repository.Name, a.repository()) {
		return thread{}, &refusal{Text: "there is no such thread in this pull request"}
	}
	return thread{n.ID, n.IsResolved}, nil
}

const (
	resolveMutation   = `mutation($in: ResolveReviewThreadInput!) { done: resolveReviewThread(input: $in) { thread { id isResolved } } }`
	unresolveMutation = `mutation($in: UnresolveReviewThreadInput!) { done: unresolveReviewThread(input: $in) { thread { id isResolved } } }`
)

func resolveThread(ctx context.Context, s session, a arguments) (any, error) {
	if !a.has("threadId") {
		return nil, problem.New(problem.Invalid, "argument threadId is missing, which method %s needs", a.Method)
	}
	t, err := reviewThread(ctx, s, a)
	if err != nil {
		return nil, err
	}
	document := resolveMutation
	if a.Method == "unresolve_thread" {
		document = unresolveMutation
	}
	type input struct {
		Thread string `json:"threadId"`
	}
	type answer struct {
		Done struct {
			Thread struct {
				ID         string `json:"id"`
				IsResolved bool   `json:"isResolved"`
			} `json:"thread"`
		} `json:"done"`
	}
	got, err := graphql[answer](ctx, s, document, threadInput[input]{input{t.Thread}})
	if err != nil {
		return nil, err
	}
	if got.Done.Thread.ID == "" {
		return nil, incomplete("thread")
	}
	return thread{got.Done.Thread.ID, got.Done.Thread.IsResolved}, nil
}

const readThreads = `query($owner: String!, $name: String!, $number: Int!, $first: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: $first, after: $after) {
    totalCount pageInfo { hasNextPage endCursor }
    nodes { id isResolved isOutdated path line comments(first: 20) { totalCount nodes { databaseId author { login } createdAt body url } } }
  } } } }`

// threadsOf has readThreads' variables.
type threadsOf struct {
	Owner  string  `json:"owner"`
	Name   string  `json:"name"`
	Number int     `json:"number"`
	First  int     `json:"first"`
	After  *string `json:"after"`
}

// node is a thread as GraphQL has it.
type node struct {
	ID         string `json:"id"`
	IsResolved bool   `json:"isResolved"`
	IsOutdated bool   `json:"isOutdated"`
	Path       string `json:"path"`
	Line       int    `json:"line"`
	Comments   struct {
		Total int `json:"totalCount"`
		Nodes []struct {
			ID     int64 `json:"databaseId"`
			Author struct {
				Login string `json:"login"`
			} `json:"author"`
			Created *github.Timestamp `json:"createdAt"`
			Body    string            `json:"body"`
			URL     string            `json:"url"`
		} `json:"nodes"`
	} `json:"comments"`
}

// threadRead is a thread with its comments.
type threadRead struct {
	Thread   string    `json:"thread"`
	Resolved bool      `json:"resolved"`
	Outdated bool      `json:"outdated,omitempty"`
	Path     string    `json:"path"`
	Line     int       `json:"line,omitempty"`
	Total    int       `json:"total_comments"`
	Comments []comment `json:"comments"`
}

func shownThread(c *cutter, n node) threadRead {
	out := threadRead{Thread: n.ID, Resolved: n.IsResolved, Outdated: n.IsOutdated, Path: n.Path, Line: n.Line, Total: n.Comments.Total}
	c.cut = c.cut || n.Comments.Total > len(n.Comments.Nodes)
	for _, one := range n.Comments.Nodes {
		out.Comments = append(out.Comments, comment{one.ID, one.Author.Login, one.Created, c.text(one.Body, maxLong), one.URL})
	}
	return out
}

// reviewThreads lists threads with their ids, which only GraphQL knows.
func reviewThreads(ctx context.Context, s session, a arguments) (any, error) {
	type answer struct {
		Repository struct {
			Pull *struct {
				Threads struct {
					Total int `json:"totalCount"`
					Page  struct {
						More bool   `json:"hasNextPage"`
						End  string `json:"endCursor"`
					} `json:"pageInfo"`
					Nodes []node `json:"nodes"`
				} `json:"reviewThreads"`
			} `json:"pullRequest"`
		} `json:"repository"`
	}
	got, err := ask[answer](ctx, s, readThreads, threadsOf{a.Owner, a.Repo, a.Number, a.list().PerPage, optional(a, "after", a.After)})
	if err != nil {
		return nil, err
	}
	if got.Repository.Pull == nil {
		return nil, incomplete("pull request")
	}
	threads := got.Repository.Pull.Threads
	out := listed(threads.Nodes, nil, shownThread)
	out.Total = threads.Total
	if threads.Page.More {
		out.NextAfter, out.Truncated = threads.Page.End, true
	}
	return out, nil
}
