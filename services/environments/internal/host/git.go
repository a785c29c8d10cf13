package host

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
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
			return problem.New(problem.Unknown, "unknown_outcome: git was cut off while it pushed: %s", g.out.Stderr)
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
