package host

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// ofRevision is what may name a commit: nothing that git takes for an option, and no range.
var ofRevision = regexp.MustCompile(`^[A-Za-z0-9_@][A-Za-z0-9_.+@{}~^#/-]{0,199}$`)

func revision(name, text string) error {
	if !ofRevision.MatchString(text) || strings.Contains(text, "..") {
		return problem.New(problem.Invalid, "%s %.80q is no commit, branch or tag", name, text)
	}
	return nil
}

func (g *gitCall) status(ctx context.Context, a machine.GitStatusArgs) error {
	text, ok, err := g.step(ctx, "", a.Dir, gitLocal, []string{"GIT_OPTIONAL_LOCKS=0"}, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")
	if err != nil || !ok {
		return err
	}
	g.out.Files = []machine.GitFile{}
	entries := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	for i := 0; i < len(entries); i++ {
		kind, rest, _ := strings.Cut(entries[i], " ")
		var f machine.GitFile
		switch kind {
		case "#":
			name, value, _ := strings.Cut(rest, " ")
			switch name {
			case "branch.oid":
				g.out.Commit = value
			case "branch.head":
				g.out.Branch = value
			case "branch.upstream":
				g.out.Upstream = value
			case "branch.ab":
				_, _ = fmt.Sscanf(value, "+%d -%d", &g.out.Ahead, &g.out.Behind) // git's own numbers
			}
			continue
		case "?":
			f = machine.GitFile{Path: rest, State: "??"}
		case "1", "u", "2":
			before := map[string]int{"1": 8, "2": 9, "u": 10}[kind] // fields, of which the path is the last
			fields := strings.SplitN(rest, " ", before)
			if len(fields) != before {
				continue
			}
			f = machine.GitFile{Path: fields[before-1], State: strings.ReplaceAll(fields[0], ".", " ")}
			if kind == "2" && i+1 < len(entries) {
				i++
				f.From = entries[i]
			}
		default:
			continue
		}
		if len(g.out.Files) == maxGitFiles {
			g.out.More = true
			break
		}
		g.out.Files = append(g.out.Files, f)
	}
	return nil
}

func (g *gitCall) diff(ctx context.Context, a machine.GitDiffArgs) error {
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--numstat", "--patch"}
	if a.Staged {
		args = append(args, "--cached")
	}
	for name, text := range map[string]string{"from": a.From, "to": a.To} {
		if text != "" {
			if err := revision(name, text); err != nil {
				return err
			}
		}
	}
	if a.To != "" && a.From == "" {
		return problem.New(problem.Invalid, "to is of no use without from")
	}
	for _, text := range []string{a.From, a.To} {
		if text != "" {
			args = append(args, text)
		}
	}
	text, ok, err := g.step(ctx, "", a.Dir, gitLocal, []string{"GIT_OPTIONAL_LOCKS=0"}, append(append(args, "--"), a.Paths...)...)
	if err != nil || !ok {
		return err
	}
	g.out.Files = []machine.GitFile{}
	numbers, patch, _ := strings.Cut(text, "\n\n")
	g.out.Patch = patch
	for line := range strings.Lines(numbers) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) != 3 {
			continue
		}
		if len(g.out.Files) == maxGitFiles {
			g.out.More = true
			break
		}
		one := machine.GitFile{Path: f[2], Binary: f[0] == "-"}
		one.Added, _ = strconv.Atoi(f[0]) // none of a binary file
		one.Removed, _ = strconv.Atoi(f[1])
		g.out.Files = append(g.out.Files, one)
	}
	return nil
}

func (g *gitCall) log(ctx context.Context, a machine.GitLogArgs) error {
	n := a.Max
	if n == 0 {
		n = 20
	}
	from := a.From
	if from == "" {
		from = "HEAD"
	}
	if n < 1 || n > 200 {
		return problem.New(problem.Invalid, "max is outside 1 to 200")
	}
	if err := revision("from", from); err != nil {
		return err
	}
	args := []string{"log", "--no-ext-diff", "--format=%H%x1f%P%x1f%an <%ae>%x1f%aI%x1f%s%x1f%b%x1e", "-n", strconv.Itoa(n + 1), from, "--"}
	if a.Path != "" {
		args = append(args, a.Path)
	}
	text, ok, err := g.step(ctx, "", a.Dir, gitLocal, nil, args...)
	if err != nil || !ok {
		return err
	}
	g.out.Commits = []machine.GitCommit{}
	for record := range strings.SplitSeq(text, "\x1e") {
		f := strings.SplitN(strings.TrimPrefix(record, "\n"), "\x1f", 6)
		if len(f) != 6 {
			continue
		}
		if len(g.out.Commits) == n {
			g.out.More = true
			break
		}
		g.out.Commits = append(g.out.Commits, machine.GitCommit{Commit: f[0], Parents: strings.Fields(f[1]), Author: f[2], Date: f[3], Subject: f[4], Body: strings.TrimSpace(f[5])})
	}
	return nil
}

// head notes what is checked out.
func (g *gitCall) head(ctx context.Context, dir string) error {
	code, reason := g.out.Code, g.out.Reason
	text, ok, err := g.step(ctx, "-head", dir, gitLocal, nil, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
	if err != nil {
		return err
	}
	if f := strings.Fields(text); ok && len(f) == 2 {
		g.out.Commit, g.out.Branch = f[0], f[1]
	}
	g.out.Code, g.out.Reason, g.ended, g.out.Stderr = code, reason, reason, "" // an empty repository has no head
	return nil
}
