package github

import (
	"context"
	"crypto/sha1" // git's name of a blob, no secret
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var writeTools = []tool{
	{
		name: "create_branch", effect: connection.Probeable, risk: adds,
		about:    "Create a branch at the head of another.",
		required: inRepo(branch),
		optional: []param{of("from_branch", aText, "the default branch when left out", func(a *arguments) *string { return &a.Base }, refName)},
		routes:   []string{"GET {repo}", "GET {repo}/git/ref/heads/{branch...}", "POST {repo}/git/refs"}, needs: permissions{"contents": "write"},
		call: createBranch, probe: findBranch,
	},
	{
		name: "create_or_update_file", effect: connection.Probeable, risk: changes,
		about:    "Commit one file to a branch. To replace a file, give the blob sha of the version that you have read, as sha.",
		required: inRepo(path, of("content", aText, "the whole file, as text", func(a *arguments) *string { return &a.Content }, fileText), message, branch),
		optional: []param{blobSHA.told("needed when the file exists: its blob sha, from get_file_contents")},
		routes:   []string{"PUT {repo}/contents/{path...}", "GET {repo}/contents/{path...}"}, needs: permissions{"contents": "write"},
		call: writeFile, probe: findFile,
	},
	{
		name: "push_files", effect: connection.Probeable, risk: changes,
		about: "Commit several files to a branch at once. It replaces them, and is refused when the branch moves meanwhile.",
		required: inRepo(branch, of("files", `{"type":"array","minItems":1,"maxItems":50,"items":{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"],"additionalProperties":false}}`,
			"", func(a *arguments) *[]file { return &a.Files }, each(50, readFile)), message),
		routes: []string{"GET {repo}/git/ref/heads/{branch...}", "GET {repo}/git/commits/{sha}", "prepare POST {repo}/git/trees", "prepare POST {repo}/git/commits",
			"PATCH {repo}/git/refs/heads/{branch...}", "GET {repo}/contents/{path...}"},
		needs: permissions{"contents": "write"},
		call:  pushFiles, probe: findFiles,
	},
	{
		name: "delete_file", effect: connection.Probeable, risk: destructive,
		about:    "Delete a file on a branch. Give the blob sha of the version that you have read, so that no other is deleted.",
		required: inRepo(path, message, branch),
		optional: []param{blobSHA.told("blob sha, from get_file_contents; whatever is there now when left out")},
		routes:   []string{"DELETE {repo}/contents/{path...}", "GET {repo}/contents/{path...}", "GET {repo}/git/ref/heads/{branch...}"}, needs: permissions{"contents": "write"},
		call: deleteFile, probe: findDeletion,
	},
}

type branchMade struct {
	Branch string `json:"branch"`
	SHA    string `json:"sha"`
}

// headOf is the commit that a branch is at.
func headOf(ctx context.Context, s session, a arguments, name string) (string, error) {
	r, _, err := s.Git.GetRef(ctx, a.Owner, a.Repo, "heads/"+name)
	if err != nil {
		return "", err
	}
	if sha := r.GetObject().GetSHA(); shaPattern.MatchString(sha) {
		return sha, nil
	}
	return "", incomplete("commit")
}

// startOf is the commit that a new branch starts from.
func startOf(ctx context.Context, s session, a arguments) (string, error) {
	from := a.Base
	if from == "" {
		r, _, err := s.Repositories.Get(ctx, a.Owner, a.Repo)
		if err != nil {
			return "", err
		}
		if from = r.GetDefaultBranch(); badRef(from) != "" { // it goes into a path
			return "", incomplete("default branch")
		}
	}
	return headOf(ctx, s, a, from)
}

func createBranch(ctx context.Context, s session, a arguments) (any, error) {
	sha, err := startOf(ctx, s, a)
	if err != nil {
		return nil, err
	}
	made, _, err := s.Git.CreateRef(ctx, a.Owner, a.Repo, &github.Reference{Ref: github.String("refs/heads/" + a.Branch), Object: &github.GitObject{SHA: &sha}})
	if err != nil {
		return nil, err
	}
	if made.GetObject().GetSHA() == "" {
		return nil, incomplete("branch")
	}
	return branchMade{a.Branch, made.GetObject().GetSHA()}, nil
}

// findBranch finds the branch at the commit that it was to start from. At another it is somebody's work, and creating it
// will be refused.
func findBranch(ctx context.Context, s session, a arguments) (any, bool, error) {
	at, err := headOf(ctx, s, a, a.Branch)
	if missing(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	from, err := startOf(ctx, s, a)
	return branchMade{a.Branch, at}, err == nil && at == from, err
}

type fileWritten struct {
	Path   string `json:"path"`
	SHA    string `json:"sha"`
	Commit string `json:"commit,omitempty"`
	URL    string `json:"url,omitempty"`
}

var errNoPath = problem.New(problem.Invalid, "argument path is empty")

func writeFile(ctx context.Context, s session, a arguments) (any, error) {
	if a.Path == "" {
		return nil, errNoPath
	}
	got, _, err := s.Repositories.UpdateFile(ctx, a.Owner, a.Repo, escaped(a.Path), &github.RepositoryContentFileOptions{
		Message: &a.Message, Content: []byte(a.Content), Branch: &a.Branch, SHA: optional(a, "sha", a.SHA)})
	if no := refusedWith(err, http.StatusConflict, http.StatusUnprocessableEntity); no != nil { // github-mcp-server#595
		if a.has("sha") {
			return nil, hinted(no, "if the file is not at this sha any more: read it again with get_file_contents, and give the sha that comes with it")
		}
		return nil, hinted(no, "if the file exists: read it with get_file_contents, and give its blob sha as sha")
	}
	if err != nil {
		return nil, err
	}
	if got.Commit.GetSHA() == "" {
		return nil, incomplete("commit")
	}
	return fileWritten{a.Path, got.GetContent().GetSHA(), got.Commit.GetSHA(), got.GetContent().GetHTMLURL()}, nil
}

// blobName is git's name of a file's content.
func blobName(content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))
	return hex.EncodeToString(sum[:])
}

// holds says whether a branch has a file with this content.
func holds(ctx context.Context, s session, a arguments, f file) (bool, error) {
	c, _, err := contents(ctx, s, a, f.path, a.Branch)
	if missing(err) {
		return false, nil
	}
	return err == nil && c.GetSHA() == blobName(f.content), err
}

func findFile(ctx context.Context, s session, a arguments) (any, bool, error) {
	if a.Path == "" {
		return nil, false, nil
	}
	there, err := holds(ctx, s, a, file{a.Path, a.Content})
	return fileWritten{Path: a.Path, SHA: blobName(a.Content)}, there, err
}

type pushed struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	Files  int    `json:"files"`
}

// pushFiles makes a commit on top of the branch's head, and moves the branch to it without force: a push in between
// leaves our commit beside the branch, and GitHub refuses the move. So the head that was read is the one that counts.
func pushFiles(ctx context.Context, s session, a arguments) (any, error) {
	if len(a.Files) == 0 {
		return nil, problem.New(problem.Invalid, "argument files is empty")
	}
	head, err := headOf(ctx, s, a, a.Branch)
	if err != nil {
		return nil, err
	}
	under, _, err := s.Git.GetCommit(ctx, a.Owner, a.Repo, head)
	if err != nil {
		return nil, err
	}
	entries := make([]*github.TreeEntry, len(a.Files))
	for i, f := range a.Files {
		entries[i] = &github.TreeEntry{Path: &f.path, Content: &f.content, Mode: github.String("100644"), Type: github.String("blob")}
	}
	tree, _, err := s.Git.CreateTree(ctx, a.Owner, a.Repo, under.GetTree().GetSHA(), entries)
	if err != nil {
		return nil, err
	}
	if tree.GetSHA() == "" {
		return nil, incomplete("tree")
	}
	made, _, err := s.Git.CreateCommit(ctx, a.Owner, a.Repo, &github.Commit{Message: &a.Message, Tree: tree, Parents: []*github.Commit{{SHA: &head}}}, nil)
	if err != nil {
		return nil, err
	}
	if made.GetSHA() == "" {
		return nil, incomplete("commit")
	}
	moved, _, err := s.Git.UpdateRef(ctx, a.Owner, a.Repo, &github.Reference{Ref: github.String("heads/" + a.Branch), Object: &github.GitObject{SHA: made.SHA}}, false)
	if no := refusedWith(err, http.StatusConflict, http.StatusUnprocessableEntity); no != nil {
		return nil, hinted(no, "if the branch was pushed to meanwhile: look at what changed, and push again")
	}
	if err != nil {
		return nil, err
	}
	if moved.GetObject().GetSHA() != made.GetSHA() {
		return nil, incomplete("branch at the new commit")
	}
	return pushed{a.Branch, made.GetSHA(), len(a.Files)}, nil
}

func findFiles(ctx context.Context, s session, a arguments) (any, bool, error) {
	for _, f := range a.Files {
		if there, err := holds(ctx, s, a, f); err != nil || !there {
			return nil, false, err
		}
	}
	head, err := headOf(ctx, s, a, a.Branch)
	return pushed{a.Branch, head, len(a.Files)}, err == nil && len(a.Files) > 0, err
}

func deleteFile(ctx context.Context, s session, a arguments) (any, error) {
	if a.Path == "" {
		return nil, errNoPath
	}
	sha := a.SHA
	if sha == "" {
		c, _, err := contents(ctx, s, a, a.Path, a.Branch)
		if err != nil {
			return nil, err
		}
		if sha = c.GetSHA(); sha == "" {
			return nil, &refusal{Text: "the path is a directory; this tool deletes one file"}
		}
	}
	got, _, err := s.Repositories.DeleteFile(ctx, a.Owner, a.Repo, escaped(a.Path), &github.RepositoryContentFileOptions{Message: &a.Message, SHA: &sha, Branch: &a.Branch})
	if no := refusedWith(err, http.StatusConflict, http.StatusUnprocessableEntity); no != nil {
		return nil, hinted(no, "if the file is not at this sha any more: read it again before you delete it")
	}
	if err != nil {
		return nil, err
	}
	if got.Commit.GetSHA() == "" {
		return nil, incomplete("commit")
	}
	return done{Done: "deleted", SHA: got.Commit.GetSHA()}, nil
}

// findDeletion finds the branch without the file.
func findDeletion(ctx context.Context, s session, a arguments) (any, bool, error) {
	if a.Path == "" {
		return nil, false, nil
	}
	if _, err := headOf(ctx, s, a, a.Branch); err != nil {
		return nil, false, err // a file is missing from a branch only if there is the branch
	}
	_, _, err := contents(ctx, s, a, a.Path, a.Branch)
	if missing(err) {
		return done{Done: "deleted"}, true, nil
	}
	return nil, false, err
}
