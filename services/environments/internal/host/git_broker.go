package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// lent clones, fetches or pushes over what the broker lends. Git is told an address of the connection, which it keeps, and
// for this command where that is: a port in the cage, which ends with it.
func (g *gitCall) lent(ctx context.Context, name string) error {
	l, err := machine.LentOf(g.order.Tool, g.order.Args)
	if err != nil {
		return problem.New(problem.Invalid, "%v", err)
	}
	var how struct {
		dir, branch string
		depth       int
		force       bool
		timeout     int
	}
	switch name {
	case "git_clone":
		err = gitArgs(g.order, func(a machine.GitCloneArgs) error {
			how.dir, how.branch, how.depth, how.timeout = a.Dir, a.Branch, a.Depth, a.Timeout
			return nil
		})
	case "git_fetch":
		err = gitArgs(g.order, func(a machine.GitFetchArgs) error {
			how.dir, how.branch, how.timeout = a.Dir, a.Branch, a.Timeout
			return nil
		})
	case "git_push":
		err = gitArgs(g.order, func(a machine.GitPushArgs) error {
			how.dir, how.branch, how.force, how.timeout = a.Dir, a.Branch, a.Force, a.Timeout
			return nil
		})
	}
	if err == nil && how.branch != "" {
		err = machine.CheckBranch(how.branch)
	}
	timeout := time.Duration(how.timeout) * time.Second
	if timeout == 0 {
		timeout = gitTimeout
	}
	if err != nil || how.depth < 0 || timeout < 0 || timeout > maxTimeout || strings.ContainsRune(how.dir, 0) {
		return problem.Wrap(err, problem.Invalid, "branch, depth or timeout_s is not what it may be")
	}
	source := ""
	if name == "git_push" {
		// What is pushed is one commit that is known before: a hook that moves HEAD changes nothing.
		if source = l.Commit; source == "" {
			source = "HEAD"
		}
		text, ok, err := g.step(ctx, "-rev", how.dir, gitLocal, nil, "rev-parse", "--verify", source+"^{commit}")
		if err != nil || !ok {
			return err
		}
		source = strings.TrimSpace(text)
	}
	serve, port, err := g.borrow(ctx, g.place, g.order, l)
	if err != nil {
		return err
	}
	remote := "execwarden://" + l.Connection + "/" + l.Owner + "/" + l.Name + ".git"
	args := []string{"-c", fmt.Sprintf("url.http://127.0.0.1:%d/.insteadOf=execwarden://%s/", port, l.Connection)}
	cwd := how.dir
	switch name {
	case "git_clone":
		if cwd = ""; how.dir == "" {
			how.dir = l.Name
		}
		args = append(args, "clone", "--no-progress")
		if how.branch != "" {
			args = append(args, "--branch", how.branch)
		}
		if how.depth > 0 {
			args = append(args, "--depth", strconv.Itoa(how.depth))
		}
		args = append(args, "--", remote, how.dir)
	case "git_fetch":
		branch := how.branch
		if branch == "" {
			branch = "*"
		}
		args = append(args, "fetch", "--no-progress", "--no-recurse-submodules", remote, "+refs/heads/"+branch+":refs/remotes/origin/"+branch)
	case "git_push":
		args = append(args, "push", "--porcelain", "--no-progress")
		if how.force {
			args = append(args, "--force")
		}
		args = append(args, remote, source+":refs/heads/"+how.branch)
	}
	text, ok, err := g.step(ctx, "", cwd, timeout, nil, args...)
	fault := serve.Close()
	if err != nil {
		return err
	}
	g.out.Dir, g.out.Repo = how.dir, l.Owner+"/"+l.Name
	if fault != nil && !ok {
		g.out.Problem = problem.DetailOf(fault).Message
	}
	switch {
	case name == "git_push":
		g.out.Branch, g.out.Commit = how.branch, source
		g.out.Pushed = pushed(text)
		if !ok && g.out.Pushed == "" && serve.pushing && g.begunToPush(fault) {
			return g.lookUp(ctx, serve, how.branch, source)
		}
	case !ok:
	case name == "git_clone":
		return g.head(ctx, how.dir)
	case how.branch != "":
		at, known, err := g.step(ctx, "-head", cwd, gitLocal, nil, "rev-parse", "refs/remotes/origin/"+how.branch)
		if err != nil {
			return err
		}
		if known {
			g.out.Branch, g.out.Commit = how.branch, strings.TrimSpace(at)
		}
	}
	return nil
}

// begunToPush says whether a push that failed may have had its effect: its command was ended, or nobody said why it failed.
func (g *gitCall) begunToPush(fault error) bool {
	if g.ended != "" {
		return true
	}
	switch problem.CodeOf(fault) {
	case problem.Unavailable, problem.Timeout, problem.Cancelled:
		return true
	}
	return false
}

// pushed reads what became of the one ref of a push (git-push, "OUTPUT").
func pushed(text string) string {
	for line := range strings.Lines(text) {
		if f := strings.Split(line, "\t"); len(f) == 3 && strings.Contains(f[1], ":refs/heads/") {
			return map[string]string{" ": "updated", "+": "forced", "*": "new", "=": "up_to_date", "!": "rejected"}[f[0]]
		}
	}
	return ""
}
