package github

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// tool is one GitHub tool and how it is called.
type tool struct {
	connection.Tool
	required, optional []string
	call               func(context.Context, *github.Client, arguments, upstream.Call) (any, error)
	probe              func(context.Context, *github.Client, arguments, upstream.Call) (any, bool, error)
}

var tools = []tool{
	{
		Tool: connection.Tool{
			Name: "issue_read", Effect: connection.Pure,
			Description: "Read an issue: method get for the issue itself, get_comments for a page of its comments.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"method":{"type":"string","enum":["get","get_comments"]},"owner":{"type":"string"},"repo":{"type":"string"},"issue_number":{"type":"integer","minimum":1},"page":{"type":"integer","minimum":1}},"required":["method","owner","repo","issue_number"],"additionalProperties":false}`),
		},
		required: []string{"method", "owner", "repo", "issue_number"}, optional: []string{"page"},
		call: readIssue,
	},
	{
		Tool: connection.Tool{
			Name: "add_issue_comment", Effect: connection.Probeable, Writes: true,
			Description: "Add a comment to an issue or pull request.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"issue_number":{"type":"integer","minimum":1},"body":{"type":"string"}},"required":["owner","repo","issue_number","body"],"additionalProperties":false}`),
		},
		required: []string{"owner", "repo", "issue_number", "body"},
		call:     addComment, probe: findComment,
	},
}

// perPage is how many comments one page has.
const perPage = 50

type issue struct {
	Number int      `json:"number"`
	Title  string   `json:"title"`
	State  string   `json:"state"`
	Author string   `json:"author"`
	Labels []string `json:"labels,omitempty"`
	Body   string   `json:"body"`
	URL    string   `json:"url"`
}

type comment struct {
	ID     int64  `json:"id"`
	Author string `json:"author"`
	Body   string `json:"body"`
	URL    string `json:"url"`
}

type comments struct {
	Comments  []comment `json:"comments"`
	NextPage  int       `json:"next_page,omitempty"`
	Truncated bool      `json:"truncated"`
}

func readIssue(ctx context.Context, gh *github.Client, a arguments, _ upstream.Call) (any, error) {
	switch a.Method {
	case "get":
		i, _, err := gh.Issues.Get(ctx, a.Owner, a.Repo, a.Number)
		if err != nil {
			return nil, err
		}
		out := issue{Number: i.GetNumber(), Title: i.GetTitle(), State: i.GetState(), Author: i.GetUser().GetLogin(), Body: i.GetBody(), URL: i.GetHTMLURL()}
		for _, l := range i.Labels {
			out.Labels = append(out.Labels, l.GetName())
		}
		return out, nil
	case "get_comments":
		list, resp, err := gh.Issues.ListComments(ctx, a.Owner, a.Repo, a.Number, &github.IssueListCommentsOptions{
			ListOptions: github.ListOptions{Page: a.Page, PerPage: perPage},
		})
		if err != nil {
			return nil, err
		}
		out := comments{NextPage: resp.NextPage, Truncated: resp.NextPage != 0}
		for _, c := range list {
			out.Comments = append(out.Comments, shorten(c))
		}
		return out, nil
	}
	return nil, problem.New(problem.Invalid, "issue_read has no method %.40q; there are get and get_comments", a.Method)
}

func addComment(ctx context.Context, gh *github.Client, a arguments, c upstream.Call) (any, error) {
	if strings.TrimSpace(a.Body) == "" {
		return nil, problem.New(problem.Invalid, "argument body is empty")
	}
	body := a.Body + "\n\n" + marker(c)
	made, _, err := gh.Issues.CreateComment(ctx, a.Owner, a.Repo, a.Number, &github.IssueComment{Body: &body})
	if err != nil {
		return nil, err
	}
	if made.GetID() == 0 { // the library takes an empty answer for an empty comment
		return nil, problem.New(problem.Upstream, "GitHub's answer names no comment")
	}
	return shorten(made), nil
}

// findComment looks for the comment that an earlier attempt may have left, among the newest first.
func findComment(ctx context.Context, gh *github.Client, a arguments, c upstream.Call) (any, bool, error) {
	opts := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}}
	since := time.Now().Add(-lookBack)
	opts.Since = &since
	for range maxPages {
		list, resp, err := gh.Issues.ListComments(ctx, a.Owner, a.Repo, a.Number, opts)
		if err != nil {
			return nil, false, err
		}
		for _, found := range list {
			if strings.Contains(found.GetBody(), marker(c)) {
				return shorten(found), true, nil
			}
		}
		if resp.NextPage == 0 {
			return nil, false, nil
		}
		opts.Page = resp.NextPage
	}
	return nil, false, problem.New(problem.Unknown, "the issue has too many comments to look through")
}

// How far back, and through how many pages, an effect is looked for. A call is at most a permit's life old.
const (
	lookBack = 24 * time.Hour
	maxPages = 20
)

// marker makes the effect of a call recognisable, invisibly to readers.
func marker(c upstream.Call) string { return "<!-- execwarden:" + c.Effect + " -->" }

// marked finds markers, with the space in front.
var marked = regexp.MustCompile(`\s*<!-- execwarden:[a-z0-9_]+ -->`)

// shorten is what an agent sees of a comment: no marker, which it could copy.
func shorten(c *github.IssueComment) comment {
	return comment{ID: c.GetID(), Author: c.GetUser().GetLogin(), Body: marked.ReplaceAllString(c.GetBody(), ""), URL: c.GetHTMLURL()}
}
