package shim

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// reap asks orphans of commands, which become this process's children, how they ended, so that none stays a zombie. The
// commands themselves are waited for where they were started.
func (l *launcher) reap() {
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, unix.SIGCHLD)
	for range gone {
		l.starting.Lock() // what is being started is not known yet
		for _, pid := range children() {
			if !l.commands[pid] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // one that runs on stays
			}
		}
		l.starting.Unlock()
	}
}

// adopt asks as process 1 whatever has lost its parent how it ended, until Close.
func (s *Shim) adopt() {
	s.orphans = make(chan os.Signal, 1)
	signal.Notify(s.orphans, unix.SIGCHLD)
	s.listening.Go(func() {
		for range s.orphans {
			for _, pid := range children() {
				if pid != s.launcher.Process.Pid {
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // one that runs on stays
				}
			}
		}
	})
}

// children lists this process's children, which belong to the threads that began or adopted them.
func children() (out []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is right
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, text := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(text); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}
