package host

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

var ofAuthor = regexp.MustCompile(`^([^<>\x00-\x1f]{1,200}) <([^<>\s\x00-\x1f]{1,200})>$`)

func (g *gitCall) commit(ctx context.Context, a machine.GitCommitArgs) error {
	var env []string
	as := func(name, address string) {
		env = []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + address, "GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + address}
	}
	switch m := ofAuthor.FindStringSubmatch(a.Author); {
	case strings.TrimSpace(a.Message) == "" || strings.ContainsRune(a.Message, 0):
		return problem.New(problem.Invalid, "a commit needs a message")
	case m != nil:
		as(m[1], m[2])
	case a.Author != "":
		return problem.New(problem.Invalid, "author has to be Name <address>")
	default:
		if _, known, err := g.step(ctx, "-who", a.Dir, gitLocal, nil, "config", "--get", "user.email"); err != nil {
			return err
		} else if !known {
			name := cmp.Or(id.Name(g.order.Agent), "agent")
			as(name, name+"@execwarden.invalid")
		}
	}
	stage := []string{"add", "--all"}
	if !a.All {
		stage = append([]string{"add", "--"}, a.Paths...)
	}
	if a.All || len(a.Paths) > 0 {
		if _, ok, err := g.step(ctx, "-add", a.Dir, gitLocal, nil, stage...); err != nil || !ok {
			return err
		}
	}
	said, ok, err := g.step(ctx, "", a.Dir, gitLocal, env, "commit", "--cleanup=strip", "-m", a.Message)
	if err != nil {
		return err
	}
	if !ok {
		if g.out.Stderr == "" {
			g.out.Stderr = said[:min(len(said), maxGitSaid)] // that there is nothing to commit is no error to git
		}
		return nil
	}
	return g.head(ctx, a.Dir)
}

func (g *gitCall) branch(ctx context.Context, a machine.GitBranchArgs) error {
	if a.Name == "" {
		text, ok, err := g.step(ctx, "", a.Dir, gitLocal, nil, "for-each-ref", "--count="+strconv.Itoa(maxGitFiles+1), "--format=%(refname:short)%00%(objectname)%00%(HEAD)", "refs/heads")
		if err != nil || !ok {
			return err
		}
		g.out.Branches = []machine.GitRef{}
		for line := range strings.Lines(text) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\x00")
			if len(f) != 3 {
				continue
			}
			if len(g.out.Branches) == maxGitFiles {
				g.out.More = true
				break
			}
			g.out.Branches = append(g.out.Branches, machine.GitRef{Name: f[0], Commit: f[1], Current: f[2] == "*"})
		}
		return nil
	}
	if err := machine.CheckBranch(a.Name); err != nil {
		return problem.New(problem.Invalid, "%v", err)
	}
	args := []string{"switch", "--no-guess"}
	if a.Create {
		args = append(args, "--no-track", "-c")
	}
	args = append(args, a.Name)
	if a.From != "" {
		if err := revision("from", a.From); err != nil || !a.Create {
			return problem.Wrap(err, problem.Invalid, "from says where a branch begins that is created")
		}
		args = append(args, a.From)
	}
	if _, ok, err := g.step(ctx, "", a.Dir, gitLocal, nil, args...); err != nil || !ok {
		return err
	}
	return g.head(ctx, a.Dir)
}
