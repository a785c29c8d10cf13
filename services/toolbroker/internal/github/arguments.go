package github

import (
	"fmt"
	"time"

	"github.com/google/go-github/v62/github"
)

// Limits on text, in characters. GitHub's own limit on a body is 65,536; ours leaves room for the marker.
const (
	maxText = 65_000
	maxFile = 200_000
)

var fileText = text(maxFile, anyText)

// file is one file to write.
type file struct{ path, content string }

// arguments are the checked arguments of a call. Their fields are safe to build a path or a query from.
type arguments struct {
	given map[string]bool

	Owner, Repo string
	Method      string
	Number      int // of an issue or a pull request

	Page, PerPage int
	After         string // a cursor, where GitHub has no pages

	// What is looked for.
	Query, Sort, Order, State, Severity string
	Author, Actor, Event, Status        string
	Since, Until                        time.Time

	// Places in the repository's history.
	Ref, SHA, Branch, Base, Head, HeadSHA string
	Path                                  string
	Recursive                             bool
	Detail                                string

	// What is written.
	Title, Body, Message, Content string
	StateReason                   string
	Labels, Assignees, Reviewers  []string
	Milestone                     int
	Draft, MaintainerCanModify    bool
	Files                         []file
	MergeMethod, CommitTitle      string
	ReviewEvent, Thread           string
	Comment                       int64
	Line, StartLine               int
	Side, StartSide, SubjectType  string
	Resource, Workflow            string
	Run, Job                      int64
	Inputs                        map[string]string
	FailedOnly, WithContent       bool
	TailLines                     int
}

// has says whether an argument was given, for those whose absence says more than their zero.
func (a arguments) has(name string) bool { return a.given[name] }

// repository is owner/name as the grant was compared with it.
func (a arguments) repository() string { return a.Owner + "/" + a.Repo }

// at is the path of something in the repository. The parts of it that come from arguments have to be escaped.
func (a arguments) at(format string, parts ...any) string {
	return "repos/" + a.Owner + "/" + a.Repo + fmt.Sprintf(format, parts...)
}

func (a arguments) list() github.ListOptions {
	per := a.PerPage
	if per == 0 {
		per = 30
	}
	return github.ListOptions{Page: a.Page, PerPage: per}
}

// optional is a pointer to v when the argument was given.
func optional[T any](a arguments, name string, v T) *T {
	if a.has(name) {
		return &v
	}
	return nil
}
