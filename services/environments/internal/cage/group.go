package cage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mark is the variable that tells whose process one is, where there are no control groups: it is in the environment of
// everything that a command begins, unless that takes it out.
const Mark = "EXECWARDEN_EXEC"

// Group is everything that one command began. Either it is a control group, which nothing leaves, or what can be found of
// it by its mark and its parents.
type Group struct {
	Dir  string // of a cgroup v2; empty: there is none
	Mark string // value of Mark
	Root int    // the process whose descendants are looked through, where there is no cgroup
	User [2]int // uid and gid whose marks this process may not read as itself; 0: it may

	// Still does something while every process of the cage is stopped, where there is no cgroup. nil: that cannot be done.
	Still func(do func())

	leader int // the command's own process, whatever it made of its environment
	began  string
}

// Lead names the command's own process.
func (g *Group) Lead(pid int) { g.leader, g.began = pid, startOf(pid) }

// startOf tells a process from a later one of the same number: when it was started. Empty: it is gone.
func startOf(pid int) string {
	if f := statOf(pid); len(f) > 19 {
		return f[19]
	}
	return ""
}

// statOf gives what the kernel says of a process, from its state on (proc_pid_stat(5), field 3).
func statOf(pid int) []string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	i := bytes.LastIndex(raw, []byte(") "))
	if i < 0 {
		return nil
	}
	return strings.Fields(string(raw[i+2:]))
}

// Unified finds where control groups can be made: below the cgroup of this process, or else at the top of a cgroup v2
// mount. Empty: nowhere.
func Unified() string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	var at string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			at = f[1]
			break
		}
	}
	if at == "" {
		return ""
	}
	own, _ := os.ReadFile("/proc/self/cgroup") // without it the mount's top is tried
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			if dir := filepath.Join(at, path); usable(dir) {
				return dir
			}
		}
	}
	if usable(at) {
		return at
	}
	return ""
}

// usable tries whether a group can be made, and killed, in dir.
func usable(dir string) bool {
	try := filepath.Join(dir, "execwarden-try-"+strconv.Itoa(os.Getpid()))
	if os.Mkdir(try, 0o755) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(try, "cgroup.kill"))
	return os.Remove(try) == nil && err == nil
}

// Make makes the control group, if it is one, and lets a user bring processes into it: no command can, since none sees
// the file system of the groups.
func (g Group) Make(uid, gid int) error {
	if g.Dir == "" {
		return nil
	}
	if err := os.Mkdir(g.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if uid == 0 {
		return nil
	}
	return os.Chown(filepath.Join(g.Dir, "cgroup.procs"), uid, gid)
}

// Limit bounds how many processes a control group may have, where the kernel counts them in it.
func (g Group) Limit(most int) {
	if g.Dir != "" {
		_ = os.WriteFile(filepath.Join(g.Dir, "pids.max"), []byte(strconv.Itoa(most)), 0) // else the user's limit is the only one
	}
}

// Remove removes a control group with everything below it, none of which may have processes.
func (g Group) Remove() {
	if g.Dir == "" {
		return
	}
	entries, _ := os.ReadDir(g.Dir) // one that is gone has none
	for _, e := range entries {
		if e.IsDir() {
			Group{Dir: filepath.Join(g.Dir, e.Name())}.Remove()
		}
	}
	_ = os.Remove(g.Dir) // one that still has a process stays, and is found by the next end
}

// Members lists the processes that are there.
func (g Group) Members() []int {
	if g.Dir != "" {
		return g.inCgroup(g.Dir)
	}
	return g.byMark()
}

func (g Group) inCgroup(dir string) (out []int) {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, f := range strings.Fields(string(raw)) {
		if pid, err := strconv.Atoi(f); err == nil && !zombie(pid) {
			out = append(out, pid)
		}
	}
	entries, _ := os.ReadDir(dir) // one that is gone has none
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, g.inCgroup(filepath.Join(dir, e.Name()))...)
		}
	}
	return out
}

// zombie says that a process has ended and only waits to be asked how.
func zombie(pid int) bool {
	f := statOf(pid)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// byMark looks through the descendants of Root for the mark.
func (g Group) byMark() (out []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	mark := []byte(Mark + "=" + g.Mark)
	if g.User[0] != 0 {
		defer readAs(g.User[0], g.User[1])()
	}
	var walk func(pid int, below bool)
	walk = func(pid int, below bool) {
		for _, c := range children[pid] {
			mine := below || g.Mark == "" || marked(c, mark) || c == g.leader && g.began != "" && startOf(c) == g.began
			if mine && !zombie(c) {
				out = append(out, c)
			}
			walk(c, mine)
		}
	}
	walk(g.Root, false)
	return out
}

// readAs opens files as a user until what it gives is called, on this thread alone. Root without the capabilities that
// overrule permissions can read a user's environment so, and in no other way.
func readAs(uid, gid int) (back func()) {
	runtime.LockOSThread()
	wasGID, errGID := unix.SetfsgidRetGid(gid)
	wasUID, errUID := unix.SetfsuidRetUid(uid)
	return func() {
		if errUID == nil {
			_ = unix.Setfsuid(wasUID) // root may always
		}
		if errGID == nil {
			_ = unix.Setfsgid(wasGID)
		}
		runtime.UnlockOSThread()
	}
}

func parentOf(pid int) (int, bool) {
	f := statOf(pid)
	if len(f) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(f[1])
	return parent, err == nil
}

func marked(pid int, mark []byte) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for _, one := range bytes.Split(raw, []byte{0}) {
		if bytes.Equal(one, mark) {
			return true
		}
	}
	return false
}

// Signal sends a signal to every process that is there, and says to how many.
func (g Group) Signal(sig unix.Signal) (sent int) {
	for _, pid := range g.Members() {
		if unix.Kill(pid, sig) == nil {
			sent++
		}
	}
	return sent
}

// killFor is how long what is killed may take to be gone: a process in the kernel ends when the kernel is done.
const killFor = 3 * time.Second

// killAgain is after how many looks what is found is killed again, where that is not done all at once.
const killAgain = 25

// End asks every process to end, kills after grace what is still there, and counts what outlives that. killed is how many
// there were.
func (g Group) End(ctx context.Context, grace time.Duration) (killed, survivors int) {
	killed = len(g.Members())
	if killed == 0 {
		return 0, 0
	}
	if grace > 0 {
		g.Signal(unix.SIGTERM)
		if g.gone(ctx, grace) {
			return killed, 0
		}
	}
	g.kill()
	if g.gone(context.WithoutCancel(ctx), killFor) {
		return killed, 0
	}
	return killed, len(g.Members())
}

// kill kills all at once where that can be done; otherwise again and again, since what is found may have begun others.
func (g Group) kill() {
	if g.Dir != "" && os.WriteFile(filepath.Join(g.Dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	end := func() {
		g.freeze()
		g.Signal(unix.SIGKILL)
	}
	if g.Still == nil {
		end()
		return
	}
	g.Still(end)
}

// freezes bounds how often freeze looks.
const freezes = 50

// freeze stops every process. Killing what begins others as fast as it is found only makes room for more. What is stopped
// keeps its place under the limit of processes, so that ever fewer are left to begin one.
func (g Group) freeze() {
	for range freezes {
		awake := 0
		for _, pid := range g.Members() {
			if f := statOf(pid); len(f) > 0 && (f[0] == "R" || f[0] == "S") && unix.Kill(pid, unix.SIGSTOP) == nil {
				awake++
			}
		}
		if awake == 0 {
			return
		}
	}
}

func (g Group) gone(ctx context.Context, within time.Duration) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		if len(g.Members()) == 0 {
			return true
		}
		select {
		case <-deadline.C:
			return len(g.Members()) == 0
		case <-ctx.Done():
			return false
		case <-tick.C:
			if within == killFor && g.Dir == "" && n%killAgain == 0 {
				g.kill()
			}
		}
	}
}
