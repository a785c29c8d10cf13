package postgres

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/execwarden/execwarden/libs/problem"
)

// account is the operating-system user that the server runs as.
type account struct {
	name     string
	uid, gid uint32
	groups   []uint32
	switched bool // we are root and it is not us
}

// chooseAccount returns who runs the server on the cluster in dir (which need not exist).
func chooseAccount(wanted, dir string) (account, error) {
	if os.Geteuid() != 0 {
		me, err := user.Current()
		if err != nil {
			return account{}, problem.Wrap(err, problem.Internal, "cannot tell which user we are")
		}
		if wanted != "" && wanted != me.Username {
			return account{}, problem.New(problem.Invalid, "only root can run Postgres as another user (%s)", wanted)
		}
		return newAccount(me, false)
	}
	if wanted != "" {
		u, err := user.Lookup(wanted)
		if err != nil {
			return account{}, problem.Wrap(err, problem.Invalid, "there is no user %q to run Postgres as", wanted)
		}
		if u.Uid == "0" {
			return account{}, problem.New(problem.Invalid, "Postgres refuses to run as root: name another user")
		}
		return newAccount(u, true)
	}
	if u := ownerOf(dir); u != nil && u.Uid != "0" {
		return newAccount(u, true)
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return newAccount(u, true)
		}
	}
	return account{}, problem.New(problem.Invalid, "Postgres refuses to run as root, and there is no user postgres or nobody: name one")
}

func ownerOf(dir string) *user.User {
	info, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(stat.Uid), 10))
	if err != nil {
		return nil
	}
	return u
}

func newAccount(u *user.User, switched bool) (account, error) {
	a := account{name: u.Username, switched: switched}
	ids, err := u.GroupIds()
	if err != nil {
		ids = nil // the primary group is enough to run
	}
	for _, id := range append([]string{u.Uid, u.Gid}, ids...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return account{}, problem.Wrap(err, problem.Internal, "user %s has an id that is no number", u.Username)
		}
		a.groups = append(a.groups, uint32(n))
	}
	a.uid, a.gid, a.groups = a.groups[0], a.groups[1], a.groups[1:]
	return a, nil
}

// attributes start a program as the account, in a process group of its own: a Ctrl-C at the terminal is for us, and
// the server must outlive the services that still write to it while they drain.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.switched {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
	}
	return attr
}

// give makes the account the owner of path.
func (a account) give(path string) error {
	if !a.switched {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// checkReach verifies that the account can enter dir. Without it the failure would be a "permission denied" that
// names initdb instead of the directory in the way.
func (a account) checkReach(dir string) error {
	for _, step := range parents(dir) {
		info, err := os.Stat(step)
		if err != nil {
			return problem.Wrap(err, problem.Invalid, "cannot look into %s", step)
		}
		if !a.mayEnter(info) {
			return problem.New(problem.Invalid,
				"Postgres runs as user %s, which may not enter %s (mode %04o): choose a data directory elsewhere, such as /var/lib/execwarden, or run: chmod o+x %s",
				a.name, step, info.Mode().Perm(), step)
		}
	}
	return nil
}

func (a account) mayEnter(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !ok || a.uid == 0:
		return true
	case stat.Uid == a.uid:
		return mode&0o100 != 0
	case slices.Contains(a.groups, stat.Gid):
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// parents lists dir and what it lies in, from the root down.
func parents(dir string) []string {
	steps := []string{dir}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		steps = append(steps, dir)
	}
	slices.Reverse(steps)
	return steps
}
