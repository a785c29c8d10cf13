package machine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/schemas/connection"
)

// The tools of connections that a machine's git tools are lent: what a grant on the connection names.
const (
	LentFetch = "git_fetch"
	LentPush  = "git_push"
)

// GitCloneArgs are of machine.git_clone.
type GitCloneArgs struct {
	Connection string `json:"connection"` // whose credential the broker uses
	Repo       string `json:"repo"`       // owner/name
	Dir        string `json:"dir,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Depth      int    `json:"depth,omitempty"`
	Timeout    int    `json:"timeout_s,omitempty"` // default 600, at most 3600
}

// GitFetchArgs are of machine.git_fetch. Its branches, or the one, are below refs/remotes/origin/ then.
type GitFetchArgs struct {
	Connection string `json:"connection"`
	Repo       string `json:"repo"`
	Dir        string `json:"dir,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Timeout    int    `json:"timeout_s,omitempty"`
}

// GitPushArgs are of machine.git_push: one branch, which is never deleted.
type GitPushArgs struct {
	Connection string `json:"connection"`
	Repo       string `json:"repo"`
	Dir        string `json:"dir,omitempty"`
	Branch     string `json:"branch"`           // at the provider
	Commit     string `json:"commit,omitempty"` // its full id: nothing else is pushed; default: what HEAD is
	Force      bool   `json:"force,omitempty"`
	Timeout    int    `json:"timeout_s,omitempty"`
}

// GitStatusArgs are of machine.git_status.
type GitStatusArgs struct {
	Dir string `json:"dir,omitempty"`
}

// GitDiffArgs are of machine.git_diff: what is not staged, what is (Staged), or what changed From a commit, To another.
type GitDiffArgs struct {
	Dir    string   `json:"dir,omitempty"`
	Staged bool     `json:"staged,omitempty"`
	From   string   `json:"from,omitempty"`
	To     string   `json:"to,omitempty"`
	Paths  []string `json:"paths,omitempty"`
}

// GitLogArgs are of machine.git_log.
type GitLogArgs struct {
	Dir  string `json:"dir,omitempty"`
	From string `json:"from,omitempty"` // default HEAD
	Path string `json:"path,omitempty"`
	Max  int    `json:"max,omitempty"` // default 20, at most 200
}

// GitCommitArgs are of machine.git_commit.
type GitCommitArgs struct {
	Dir     string   `json:"dir,omitempty"`
	Message string   `json:"message"`
	Paths   []string `json:"paths,omitempty"`  // staged before; default: what is staged already
	All     bool     `json:"all,omitempty"`    // everything that changed, new files too
	Author  string   `json:"author,omitempty"` // Name <address>; default: as git is configured, or else the agent
}

// GitBranchArgs are of machine.git_branch. Without a name it lists.
type GitBranchArgs struct {
	Dir    string `json:"dir,omitempty"`
	Name   string `json:"name,omitempty"`
	Create bool   `json:"create,omitempty"` // begin it, and switch to it
	From   string `json:"from,omitempty"`   // where it begins; default HEAD
}

// Git is what a git tool answers. Problem says in words why a server, or the broker, refused; Stderr has git's own.
type Git struct {
	Dir      string      `json:"dir,omitempty"`
	Repo     string      `json:"repo,omitempty"`
	Branch   string      `json:"branch,omitempty"`
	Commit   string      `json:"commit,omitempty"` // that is checked out, was fetched, made or pushed
	Pushed   string      `json:"pushed,omitempty"` // "new", "updated", "forced", "up_to_date" or "rejected"
	Upstream string      `json:"upstream,omitempty"`
	Ahead    int         `json:"ahead,omitempty"`
	Behind   int         `json:"behind,omitempty"`
	Files    []GitFile   `json:"files,omitempty"`
	Patch    string      `json:"patch,omitempty"`
	Commits  []GitCommit `json:"commits,omitempty"`
	Branches []GitRef    `json:"branches,omitempty"`
	More     bool        `json:"more,omitempty"` // there is more than is shown
	Code     int         `json:"code"`           // of git
	Reason   string      `json:"reason,omitempty"`
	Problem  string      `json:"problem,omitempty"`
	Stderr   string      `json:"stderr,omitempty"`
}

// GitFile is one that changed. State is git's two letters of it, index and working tree (git-status, short format).
type GitFile struct {
	Path    string `json:"path"`
	From    string `json:"from,omitempty"` // of one that was renamed
	State   string `json:"state,omitempty"`
	Added   int    `json:"added,omitempty"`   // lines
	Removed int    `json:"removed,omitempty"` // lines
	Binary  bool   `json:"binary,omitempty"`
}

// GitCommit is one commit.
type GitCommit struct {
	Commit  string   `json:"commit"`
	Parents []string `json:"parents,omitempty"`
	Author  string   `json:"author"`
	Date    string   `json:"date"`
	Subject string   `json:"subject"`
	Body    string   `json:"body,omitempty"`
}

// GitRef is one branch.
type GitRef struct {
	Name    string `json:"name"`
	Commit  string `json:"commit"`
	Current bool   `json:"current,omitempty"`
}

// Lent is what a tool of a machine needs of a connection besides: a call of that connection's tool, as it were, which is
// decided by the grants on it.
type Lent struct {
	Connection  string // its name
	Tool        string // its own name of it
	Owner, Name string // the one repository
	Branch      string // the one branch that may be written; empty: nothing may
	Commit      string // that it has to become; empty: any
	Args        json.RawMessage
}

// Full is the tool's full name.
func (l Lent) Full() string { return l.Connection + "." + l.Tool }

// Lends says whether a tool of a machine, by its full name, is lent a connection's credential.
func Lends(tool string) bool {
	switch tool {
	case Connection + ".git_clone", Connection + ".git_fetch", Connection + ".git_push":
		return true
	}
	return false
}

var (
	ofConnection = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	ofOwner      = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})$`)
	ofName       = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	ofBranch     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+@#/-]{0,199}$`)
	ofCommit     = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
)

// LentOf reads from a call's arguments what a connection lends to it.
func LentOf(tool string, args []byte) (l Lent, err error) {
	var repo string
	switch tool {
	case Connection + ".git_clone":
		a, err := Args[GitCloneArgs](args)
		if err != nil {
			return l, err
		}
		l.Connection, l.Tool, repo = a.Connection, LentFetch, a.Repo
	case Connection + ".git_fetch":
		a, err := Args[GitFetchArgs](args)
		if err != nil {
			return l, err
		}
		l.Connection, l.Tool, repo = a.Connection, LentFetch, a.Repo
	case Connection + ".git_push":
		a, err := Args[GitPushArgs](args)
		if err != nil {
			return l, err
		}
		l.Connection, l.Tool, l.Branch, l.Commit, repo = a.Connection, LentPush, a.Branch, a.Commit, a.Repo
		if err := CheckBranch(l.Branch); err != nil {
			return l, err
		}
		if l.Commit != "" && !ofCommit.MatchString(l.Commit) {
			return l, fmt.Errorf("commit has to be a commit's full id, in lower case")
		}
		l.Args, err = json.Marshal(map[string]any{"branch": a.Branch, "commit": a.Commit, "force": a.Force})
		if err != nil {
			return l, err
		}
	default:
		return l, fmt.Errorf("%s needs no connection", tool)
	}
	l.Owner, l.Name, _ = strings.Cut(repo, "/")
	switch {
	case !ofConnection.MatchString(l.Connection):
		return l, fmt.Errorf("connection has to be a connection's name")
	case !ofOwner.MatchString(l.Owner) || !ofName.MatchString(l.Name) || l.Name == "." || l.Name == ".." || strings.HasSuffix(l.Name, ".git"):
		return l, fmt.Errorf("repo has to be owner/name")
	}
	all := map[string]any{"owner": l.Owner, "repo": l.Name}
	if l.Args != nil {
		if err := json.Unmarshal(l.Args, &all); err != nil {
			return l, err
		}
	}
	l.Args, err = json.Marshal(all) // sorted, and so canonical
	return l, err
}

// CheckBranch says what is wrong with a branch's name (git-check-ref-format).
func CheckBranch(name string) error {
	if !ofBranch.MatchString(name) || strings.Contains(name, "..") || strings.Contains(name, "//") || strings.Contains(name, "@{") || strings.Contains(name, "/.") ||
		strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") || strings.Contains(name, ".lock/") || strings.HasPrefix(name, "refs/") {
		return fmt.Errorf("branch %.80q is no name of a branch", name)
	}
	return nil
}

const (
	ofDir  = `"dir":{"type":"string","description":"of the repository; default: the top of the volume"}`
	ofRepo = `"connection":{"type":"string","description":"name of a GitHub connection; its credential stays with the broker"},"repo":{"type":"string","description":"owner/name"},` + ofDir
	ofTime = `"timeout_s":{"type":"integer","minimum":1,"maximum":3600}`
	ofText = `{"type":"string"}`
)

var gitTools = []connection.Tool{
	tool("git_clone", connection.Opaque, true, "Clone a repository of a connection onto the machine. No credential is needed there. dir does not exist yet; default: the repository's name.",
		ofRepo+`,"branch":`+ofText+`,"depth":{"type":"integer","minimum":1},`+ofTime, `"connection","repo"`),
	tool("git_fetch", connection.Opaque, true, "Fetch a repository's branches, or one, into refs/remotes/origin/.",
		ofRepo+`,"branch":`+ofText+`,`+ofTime, `"connection","repo"`),
	tool("git_push", connection.Opaque, true, "Push what is checked out, or a commit, to one branch of a repository of a connection.",
		ofRepo+`,"branch":`+ofText+`,"commit":{"type":"string","description":"full id: push this and nothing else"},"force":{"type":"boolean"},`+ofTime, `"connection","repo","branch"`),
	tool("git_status", connection.Pure, false, "What is checked out, and which files changed.", ofDir, ""),
	tool("git_diff", connection.Pure, false, "What changed: not staged, staged, or between commits.",
		ofDir+`,"staged":{"type":"boolean"},"from":`+ofText+`,"to":`+ofText+`,"paths":{"type":"array","items":{"type":"string"},"maxItems":100}`, ""),
	tool("git_log", connection.Pure, false, "List commits, the newest first.", ofDir+`,"from":`+ofText+`,"path":`+ofText+`,"max":{"type":"integer","minimum":1,"maximum":200}`, ""),
	tool("git_commit", connection.Opaque, true, "Commit what is staged, the given paths, or all that changed.",
		ofDir+`,"message":`+ofText+`,"paths":{"type":"array","items":{"type":"string"},"maxItems":100},"all":{"type":"boolean"},"author":{"type":"string","description":"Name <address>"}`, `"message"`),
	tool("git_branch", connection.Opaque, true, "List branches, switch to one, or begin one and switch to it.", ofDir+`,"name":`+ofText+`,"create":{"type":"boolean"},"from":`+ofText, ""),
}
