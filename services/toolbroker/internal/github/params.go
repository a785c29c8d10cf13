package github

import (
	"encoding/json"
	"strings"
	"time"
)

const (
	aText = `{"type":"string"}`
	aBool = `{"type":"boolean"}`
	aTime = `{"type":"string","format":"date-time"}`
	aList = `{"type":"array","items":{"type":"string"}}`
	aNum  = `{"type":"integer","minimum":1}`
)

// The arguments that several tools have. Names are those of GitHub's own MCP server, which models know; the same
// server spells some of them two ways, so both are taken.
var (
	owner = of("owner", aText, "", func(a *arguments) *string { return &a.Owner }, ownerName)
	repo  = of("repo", aText, "", func(a *arguments) *string { return &a.Repo }, repoName)

	toNumber    = func(a *arguments) *int { return &a.Number }
	issueNumber = of("issue_number", aNum, "", toNumber, number(1, maxNumber)).also("issueNumber", "number", "pullNumber", "pull_number")
	pullNumber  = of("pullNumber", aNum, "", toNumber, number(1, maxNumber)).also("pull_number", "number", "issue_number", "issueNumber")

	page    = of("page", aNum, "next_page of the answer before", func(a *arguments) *int { return &a.Page }, number(1, maxNumber))
	perPage = of("perPage", `{"type":"integer","minimum":1,"maximum":100}`, "", func(a *arguments) *int { return &a.PerPage }, number(1, 100)).also("per_page")
	after   = of("after", aText, "next_after of the answer before", func(a *arguments) *string { return &a.After }, text(500, oneLine))

	body  = of("body", aText, "Markdown", func(a *arguments) *string { return &a.Body }, prose)
	title = of("title", aText, "", func(a *arguments) *string { return &a.Title }, text(256, func(s string) string {
		if strings.TrimSpace(s) == "" {
			return "is empty"
		}
		return oneLine(s)
	}))
	labels    = of("labels", aList, "", func(a *arguments) *[]string { return &a.Labels }, each(100, text(100, oneLine)))
	assignees = of("assignees", aList, "", func(a *arguments) *[]string { return &a.Assignees }, each(10, userName))

	path    = of("path", aText, "", func(a *arguments) *string { return &a.Path }, trimmedPath)
	ref     = of("ref", aText, "branch, tag or commit", func(a *arguments) *string { return &a.Ref }, refName)
	branch  = of("branch", aText, "", func(a *arguments) *string { return &a.Branch }, refName)
	base    = of("base", aText, "branch to merge into", func(a *arguments) *string { return &a.Base }, refName)
	head    = of("head", aText, "branch, or owner:branch of a fork", func(a *arguments) *string { return &a.Head }, text(300, badHead))
	headSHA = of("expectedHeadSha", aText, "head commit that the pull request must still have", func(a *arguments) *string { return &a.HeadSHA }, shaHex).also("expected_head_sha", "sha")
	blobSHA = of("sha", aText, "", func(a *arguments) *string { return &a.SHA }, shaHex)
	message = of("message", aText, "commit message", func(a *arguments) *string { return &a.Message }, filled)

	query = of("query", aText, "", func(a *arguments) *string { return &a.Query }, text(256, badQuery)).also("q")
	since = of("since", aTime, "", func(a *arguments) *time.Time { return &a.Since }, moment)
	event = func(about string, words ...string) param {
		return choice("event", about, func(a *arguments) *string { return &a.ReviewEvent }, words...)
	}
	commentID = of("commentId", aNum, "", func(a *arguments) *int64 { return &a.Comment }, number[int64](1, maxID)).also("comment_id")
	runID     = of("run_id", aNum, "", func(a *arguments) *int64 { return &a.Run }, number[int64](1, maxID)).also("runId")
)

// Numbers that GitHub counts up, and ids.
const (
	maxNumber = 1<<31 - 1
	maxID     = 1 << 53
)

func trimmedPath(name string, raw json.RawMessage) (string, error) {
	p, err := filePath(name, raw)
	return trimPath(p), err
}

// choice is a param with few values.
func choice(name, about string, field func(*arguments) *string, words ...string) param {
	return of(name, `{"type":"string","enum":[`+quotedList(words)+`]}`, about, field, oneOf(words...))
}

// method is the param that picks what a tool does. Grants select by it, so its name and values count to the letter.
func method(words ...string) param {
	return choice("method", "", func(a *arguments) *string { return &a.Method }, words...)
}

func state(words ...string) param {
	return choice("state", "", func(a *arguments) *string { return &a.State }, words...)
}

func sort(words ...string) param {
	return choice("sort", "", func(a *arguments) *string { return &a.Sort }, words...)
}

// order is called direction by half of GitHub's API.
func order() param {
	return choice("order", "", func(a *arguments) *string { return &a.Order }, "asc", "desc").also("direction")
}

func side(name string, field func(*arguments) *string) param {
	return choice(name, "LEFT is the old file, RIGHT the new", field, "LEFT", "RIGHT")
}

func quotedList(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quoted(w)
	}
	return strings.Join(out, ",")
}
