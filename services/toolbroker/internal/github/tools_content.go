package github

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/schemas/connection"
)

var contentTools = []tool{
	{
		name: "get_file_contents", effect: connection.Pure, risk: reads,
		about:    "Read a file, or list a directory. The answer's sha is the blob's: create_or_update_file and delete_file need it.",
		required: inRepo(),
		optional: []param{
			path.told("file or directory; the root when left out"), ref.told("branch, tag or commit; the default branch when left out"),
			of("sha", aText, "commit, in place of ref", func(a *arguments) *string { return &a.SHA }, shaHex),
		},
		routes: []string{"GET {repo}/contents", "GET {repo}/contents/", "GET {repo}/contents/{path...}"}, needs: permissions{"contents": "read"},
		call: getFileContents,
	},
	{
		name: "get_repository_tree", effect: connection.Pure, risk: reads,
		about:    "List the files of a repository, or of a part of it.",
		required: inRepo(),
		optional: []param{
			of("tree_sha", aText, "branch, tag, commit or tree; the default branch when left out", func(a *arguments) *string { return &a.Ref }, refName),
			of("recursive", aBool, "", func(a *arguments) *bool { return &a.Recursive }, boolean),
			of("path_filter", aText, "only paths that start with this", func(a *arguments) *string { return &a.Path }, trimmedPath),
		},
		routes: []string{"GET {repo}/git/trees/{ref}"}, needs: permissions{"contents": "read"},
		call: getRepositoryTree,
	},
}

// content is a file or a directory.
type content struct {
	Path      string `json:"path"`
	Type      string `json:"type"`
	SHA       string `json:"sha,omitempty"`
	Size      int    `json:"size"`
	Text      string `json:"text,omitempty"`
	Base64    string `json:"base64,omitempty"`
	Target    string `json:"target,omitempty"`
	Truncated bool   `json:"truncated"`
	Note      string `json:"note,omitempty"`
	URL       string `json:"url,omitempty"`
}

type entry struct {
	Path string `json:"path"`
	Type string `json:"type"`
	SHA  string `json:"sha"`
	Size int    `json:"size,omitempty"`
}

const (
	maxFileShown   = 80 << 10
	maxBinaryShown = 48 << 10
)

func getFileContents(ctx context.Context, s session, a arguments) (any, error) {
	at := a.Ref
	if a.SHA != "" {
		at = a.SHA
	}
	one, list, err := contents(ctx, s, a, a.Path, at)
	if err != nil {
		return nil, err
	}
	if one == nil {
		return listed(list, nil, func(_ *cutter, c *github.RepositoryContent) entry {
			return entry{c.GetPath(), c.GetType(), c.GetSHA(), c.GetSize()}
		}), nil
	}
	return shownFile(one)
}

// contents asks for a file or a directory. The library's own method takes a name with two dots for an attack.
func contents(ctx context.Context, s session, a arguments, path, ref string) (*github.RepositoryContent, []*github.RepositoryContent, error) {
	query := url.Values{}
	if ref != "" {
		query.Set("ref", ref)
	}
	got, _, err := get[fileOrDirectory](ctx, s, a.at("/contents/%s", escaped(path)), query)
	return got.file, got.list, err
}

func shownFile(c *github.RepositoryContent) (any, error) {
	out := content{Path: c.GetPath(), Type: c.GetType(), SHA: c.GetSHA(), Size: c.GetSize(), Target: c.GetTarget(), URL: c.GetHTMLURL()}
	if c.GetType() != "file" {
		return out, nil
	}
	if c.GetEncoding() == "none" || c.Content == nil {
		out.Truncated, out.Note = true, "GitHub gives no content of a file this large"
		return out, nil
	}
	text, err := c.GetContent()
	if err != nil {
		return nil, incomplete("content in an encoding that we know")
	}
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		if len(text) > maxFileShown {
			out.Truncated, out.Note = true, "the beginning of the file; the rest did not fit"
			text = whole(text[:maxFileShown])
		}
		out.Text = text
		return out, nil
	}
	if len(text) > maxBinaryShown {
		out.Truncated, out.Note = true, "the beginning of the file; the rest did not fit"
		text = text[:maxBinaryShown]
	}
	out.Base64 = base64.StdEncoding.EncodeToString([]byte(text))
	return out, nil
}

func getRepositoryTree(ctx context.Context, s session, a arguments) (any, error) {
	at := a.Ref
	if at == "" {
		at = "HEAD"
	}
	tree, _, err := s.Git.GetTree(ctx, a.Owner, a.Repo, url.PathEscape(at), a.Recursive)
	if err != nil {
		return nil, err
	}
	kept := make([]*github.TreeEntry, 0, len(tree.Entries))
	for _, e := range tree.Entries {
		if strings.HasPrefix(e.GetPath(), a.Path) {
			kept = append(kept, e)
		}
	}
	const most = 1000
	total := len(kept)
	out := listed(kept[:min(total, most)], nil, func(_ *cutter, e *github.TreeEntry) entry {
		return entry{e.GetPath(), e.GetType(), e.GetSHA(), e.GetSize()}
	})
	out.Total = total
	switch {
	case tree.GetTruncated():
		out.Truncated, out.Note = true, "the tree is too large for GitHub to list as a whole; ask for a part of it by the part's own tree_sha"
	case total > most:
		out.Truncated, out.LeftOff, out.Note = true, total-most, "narrow it with path_filter, or ask for a part by its own tree_sha"
	}
	return out, nil
}
