package host

import (
	"context"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Bounds of git tools.
const (
	gitTimeout  = 10 * time.Minute // of what goes over the network, by default
	gitLocal    = time.Minute
	maxGitText  = 192 << 10 // bytes of git's output that are read
	maxGitFiles = 500
	maxGitSaid  = 8 << 10 // bytes of what git says on stderr that are shown
)

// gitEnv and gitConfig keep git from asking anybody, and from credentials that are on the machine. Hooks and filters of a
// repository are commands like others: they run in the cage.
var (
	gitEnv = []string{"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_PAGER=cat", "GIT_EDITOR=true", "LC_ALL=C.UTF-8",
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}
	gitConfig = []string{"credential.helper=", "core.askPass=", "core.fsmonitor=false", "core.quotePath=false", "color.ui=false", "gc.autoDetach=false", "maintenance.auto=false",
		"http.proxy=", "http.followRedirects=false", "push.negotiate=false", "push.followTags=false", "push.recurseSubmodules=no", "push.gpgSign=false"}
)

// gitCall is one call of a git tool.
type gitCall struct {
	*Host
	place *place
	order connector.Order
	out   machine.Git
	ended string // why a command ended, when not by itself
}

// git carries out a git tool. Its commands are execs of the call, with receipts, limits and ends of their own; the one that
// matters has the call's own name.
func (h *Host) git(ctx context.Context, p *place, o connector.Order, name string) connector.Answer {
	g := &gitCall{Host: h, place: p, order: o}
	var err error
	switch name {
	case "git_clone", "git_fetch", "git_push":
		err = g.lent(ctx, name)
	case "git_status":
		err = gitArgs(o, func(a machine.GitStatusArgs) error { return g.status(ctx, a) })
	case "git_diff":
		err = gitArgs(o, func(a machine.GitDiffArgs) error { return g.diff(ctx, a) })
	case "git_log":
		err = gitArgs(o, func(a machine.GitLogArgs) error { return g.log(ctx, a) })
	case "git_commit":
		err = gitArgs(o, func(a machine.GitCommitArgs) error { return g.commit(ctx, a) })
	case "git_branch":
		err = gitArgs(o, func(a machine.GitBranchArgs) error { return g.branch(ctx, a) })
	}
	if problem.CodeOf(err) == problem.Unknown {
		return failed(connector.Unknown, err)
	}
	if err != nil {
		return toolError(err)
	}
	return done(g.out, g.out.Code != 0 || g.ended != "")
}

func gitArgs[A any](o connector.Order, f func(A) error) error {
	a, err := machine.Args[A](o.Args)
	if err != nil {
		return problem.New(problem.Invalid, "%v", err)
	}
	return f(a)
}

// step runs one git command in a directory to its end, and gives what it printed. A command that fails is no error: its
// code and words are in the result.
func (g *gitCall) step(ctx context.Context, name, dir string, timeout time.Duration, env []string, args ...string) (stdout string, ok bool, err error) {
	argv := []string{"git"}
	for _, c := range gitConfig {
		argv = append(argv, "-c", c)
	}
	spec, err := g.spec(g.place, g.order, machine.ExecArgs{Argv: append(argv, args...), Cwd: dir, Timeout: max(int(timeout.Seconds()), 1)})
	if err != nil {
		return "", false, err
	}
	spec.ID += name
	spec.Env = append(append(spec.Env, gitEnv...), env...) // the last one of a name counts
	g.beginning.Lock()
	if err = calledOff(g.place, g.order.Call); err == nil {
		_, err = g.place.shim.Begin(ctx, spec)
	}
	g.beginning.Unlock()
	if err != nil {
		return "", false, err
	}
	if name == "" {
		g.follow(g.place, spec.ID)
	}
	var e shim.Exec
	for e, err = g.place.shim.Get(ctx, spec.ID, time.Minute); err == nil && e.Running(); e, err = g.place.shim.Get(ctx, spec.ID, time.Minute) {
	}
	switch {
	case err != nil:
		return "", false, problem.Wrap(err, problem.Unknown, "unknown_outcome: what looks after the machine's commands went away")
	case e.Reason == shim.Denied:
		return "", false, problem.New(problem.Denied, "%s", e.Message)
	case e.Reason == shim.NotBegun:
		return "", false, problem.New(problem.Denied, "git cannot be used on the machine: %s; its owner has to install it there, or in its image", e.Message)
	case e.Reason == shim.Lost:
		return "", false, problem.New(problem.Unknown, "unknown_outcome: %s", e.Message)
	}
	var out, said strings.Builder
	for at := int64(0); at < e.Bytes && at < maxGitText; {
		got, err := g.place.shim.Read(ctx, spec.ID, at, maxGitText, 0)
		if err != nil || got.Next == at {
			break
		}
		for _, p := range got.Pieces {
			switch p.Stream {
			case 1:
				out.Write(p.Data)
			case 2:
				said.Write(p.Data)
			}
		}
		at = got.Next
	}
	g.out.More = g.out.More || e.Bytes > maxGitText
	g.out.Code, g.ended = e.Code, ""
	if e.Reason != shim.Exited {
		g.ended, g.out.Reason = e.Reason, e.Reason
	}
	text := strings.ToValidUTF8(strings.TrimSpace(said.String()), "\uFFFD")
	g.out.Stderr = text[max(0, len(text)-maxGitSaid):]
	return strings.ToValidUTF8(out.String(), "\uFFFD"), e.Code == 0 && g.ended == "", nil
}
