package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
)

// The talk of a shim and its launcher: one datagram a message, over a pair of sockets that nobody else has.
type (
	launch struct {
		ID      string   `json:"id"`
		Argv    []string `json:"argv"`
		Cwd     string   `json:"cwd"`
		Env     []string `json:"env"`
		Cgroup  bool     `json:"cgroup"`            // the last descriptor is the group's
		TTY     bool     `json:"tty,omitempty"`     // the first is the terminal that it is at
		Control bool     `json:"control,omitempty"` // see Spec

		// In place of a command:
		Way      string      `json:"way,omitempty"`      // wayIn or wayOut, answered with a descriptor
		Port     int         `json:"port,omitempty"`     // of wayIn
		Everyone unix.Signal `json:"everyone,omitempty"` // nothing is started; every process of the cage gets this signal
	}
	launched struct {
		ID        string                `json:"id"`
		Ready     bool                  `json:"ready,omitempty"` // the cage is closed
		Isolation environment.Isolation `json:"isolation,omitzero"`
		PID       int                   `json:"pid,omitempty"`
		Fault     string                `json:"fault,omitempty"`
		Denied    bool                  `json:"denied,omitempty"` // Fault is a rule's word
		Ended     bool                  `json:"ended,omitempty"`
		Code      int                   `json:"code"`
		Signal    string                `json:"signal,omitempty"`

		file *os.File // of a way
	}
)

// maxDatagram holds a command line and its environment; sockets of this kind take that much at once.
const maxDatagram = 160 << 10

const launcherFD = 3

// Launch is the launcher's main: it closes the cage and starts what it is told to until the shim is gone.
func Launch(rules cage.Rules) error {
	runtime.LockOSThread() // a command is traced for a moment by the thread that begins it
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	// It ends with the shim, and by nothing that a command sends it. Not by ignoring signals, which commands would inherit:
	// what is caught is thrown away, since nobody reads the channel.
	signal.Notify(make(chan os.Signal, 1))
	l := &launcher{most: uint64(rules.Most), commands: map[int]bool{}, programs: rules.Programs}
	var isolation environment.Isolation
	err := cage.Furnish(rules)
	if err == nil {
		isolation, err = cage.Close(rules)
	}
	if err != nil {
		l.say(launched{Ready: true, Fault: err.Error()})
		return err
	}
	// Nobody in the cage may read or trace this process, whose descriptors are the shim's.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	l.say(launched{Ready: true, Isolation: isolation})
	go l.reap()
	buffer, control := make([]byte, maxDatagram), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(launcherFD, buffer, control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return nil // the shim is gone
		}
		files := received(control[:oobn])
		var what launch
		if err := json.Unmarshal(buffer[:n], &what); err != nil {
			return err
		}
		switch {
		case what.Way != "":
			go l.open(what) // a port that does not answer holds up no command; the shim bounds how many are asked for
			continue
		case what.Everyone != 0:
			_ = unix.Kill(-1, what.Everyone) // where there is nobody, nobody is told
			l.say(launched{ID: what.ID})
			continue
		}
		l.start(what, files)
	}
}

type launcher struct {
	most     uint64       // processes of the commands' user
	mu       sync.Mutex   // of what is said
	starting sync.Mutex   // a command whose process is not noted yet
	commands map[int]bool // the processes of commands
	programs []string     // that may be started; empty: any
}

func (l *launcher) say(w launched) {
	raw, err := json.Marshal(w)
	if err != nil {
		return
	}
	var rights []byte
	if w.file != nil {
		rights = unix.UnixRights(int(w.file.Fd()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = unix.Sendmsg(launcherFD, raw, rights, nil, 0) // a shim that is gone ends this process
}

func received(control []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files
}

// start starts a command with the descriptors that came along: its input, output and errors, and its group's.
func (l *launcher) start(what launch, files []*os.File) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	want := 3
	if what.Cgroup {
		want = 4
	}
	if len(files) != want || len(what.Argv) == 0 {
		l.say(launched{ID: what.ID, Fault: "the launcher was told wrong"})
		return
	}
	cmd := &exec.Cmd{Args: what.Argv, Dir: what.Cwd, Env: what.Env, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: what.TTY, Ptrace: true}}
	if what.Control {
		cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = nil, files[2], files[:2]
	}
	var err error
	cmd.Path, err = lookPath(what)
	if at, ok := l.may(cmd.Path); err == nil && !ok && !what.Control {
		l.say(launched{ID: what.ID, Denied: true, Fault: at + " may not be run (the machine's policy, rule programs)"})
		return
	}
	if err == nil {
		if what.Cgroup {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(files[3].Fd())
		}
		l.starting.Lock()
		if err = cmd.Start(); err == nil {
			l.commands[cmd.Process.Pid] = true
			err = l.bound(cmd.Process.Pid)
		}
		l.starting.Unlock()
	}
	if err != nil {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it could not be bounded, and has run nothing
			_ = cmd.Wait()
		}
		l.say(launched{ID: what.ID, Fault: plain(err)})
		return
	}
	l.say(launched{ID: what.ID, PID: cmd.Process.Pid})
	go func() {
		err := cmd.Wait()
		l.starting.Lock()
		delete(l.commands, cmd.Process.Pid)
		l.starting.Unlock()
		end := launched{ID: what.ID, Ended: true}
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			status, _ := exit.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				end.Signal, end.Code = unix.SignalName(status.Signal()), -1
			} else {
				end.Code = status.ExitStatus()
			}
		case err != nil:
			end.Code, end.Fault = -1, plain(err)
		}
		l.say(end)
	}()
}

// bound limits how many processes a command's user may have, before the command runs its first instruction: it stops where
// its program was loaded, since it asked to be traced, and is let go then. The limit counts the user's processes on the
// whole machine; this process, which has to go on whatever a command does, is not under it.
func (l *launcher) bound(pid int) error {
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			if err != nil {
				return err
			}
			break
		}
	}
	if !status.Stopped() {
		return errors.New("the command ended before it began")
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: l.most, Max: l.most}, nil); err != nil {
		return fmt.Errorf("limit of processes: %w", err)
	}
	return unix.PtraceDetach(pid)
}

// may says whether a program may be started, and where its links lead.
func (l *launcher) may(path string) (string, bool) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, len(l.programs) == 0 || slices.Contains(l.programs, path)
}

// plain says what is wrong without the words of Go.
func plain(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	return err.Error()
}

// lookPath finds a program by the command's own PATH and directory, not by the launcher's.
func lookPath(what launch) (string, error) {
	name := what.Argv[0]
	if filepath.Base(name) != name {
		if !filepath.IsAbs(name) {
			name = filepath.Join(what.Cwd, name)
		}
		return name, nil
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range what.Env {
		if v, ok := cutEnv(e, "PATH"); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, name)
		if !filepath.IsAbs(at) {
			continue
		}
		if info, err := os.Stat(at); err == nil && !info.IsDir() && unix.Access(at, unix.X_OK) == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%s: no such program", name)
}

func cutEnv(entry, name string) (string, bool) {
	if len(entry) > len(name) && entry[:len(name)] == name && entry[len(name)] == '=' {
		return entry[len(name)+1:], true
	}
	return "", false
}
