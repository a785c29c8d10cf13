package shim

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

// Shim keeps the commands of one attachment.
type Shim struct {
	cfg       Config
	log       *slog.Logger
	isolation environment.Isolation
	socket    *os.File // to the launcher
	launcher  *exec.Cmd
	listening sync.WaitGroup
	orphans   chan os.Signal // as process 1; nil otherwise
	lost      chan struct{}  // closed when the launcher is gone

	mu      sync.Mutex
	execs   map[string]*command
	waiting map[string]chan launched // for a start
	ending  bool
	ways    map[*way]bool // listeners and streams that are open, or about to be
	asked   int           // ways so far
	changed chan struct{} // closed and replaced when a command ends
	still   sync.Mutex    // while the cage is stopped
}

// command is one that runs, or ran in this life of the shim.
type command struct {
	Exec
	dir     string
	spool   *spool.Spool
	stdin   *os.File
	tty     *os.File   // the terminal that it is at; nil: none
	feeding sync.Mutex // one who feeds it at a time
	group   cage.Group
	ended   chan launched // the leader's end
	reason  string        // why it is being ended, if it is
	done    chan struct{} // everything of it is over and recorded
}

// Start begins a shim: its launcher closes its cage first. self is the program whose "launch" is Launch.
func Start(cfg Config, self string, log *slog.Logger) (*Shim, error) {
	s := &Shim{cfg: cfg, log: log, execs: map[string]*command{}, waiting: map[string]chan launched{}, ways: map[*way]bool{}, changed: make(chan struct{}), lost: make(chan struct{})}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "execs"), 0o700); err != nil {
		return nil, err
	}
	if err := s.launch(self); err != nil {
		return nil, err
	}
	return s, nil
}

// group is everything that a command began.
func (s *Shim) group(id string) cage.Group {
	g := s.commands()
	g.Mark, g.Root = id, s.launcher.Process.Pid
	if s.cfg.Rules.Container != nil { // the shim is root with few of root's rights
		g.User = [2]int{s.cfg.UID, s.cfg.GID}
	}
	if g.Dir != "" {
		g.Dir = filepath.Join(g.Dir, id)
	}
	return g
}

// whole is the attachment's group, launchers the one of its launcher, and commands the one that commands have theirs in.
func (s *Shim) whole() cage.Group { return cage.Group{Dir: s.cfg.Cgroup} }

func (s *Shim) launchers() cage.Group { return s.below("launcher") }

func (s *Shim) commands() cage.Group { return s.below("commands") }

func (s *Shim) below(name string) cage.Group {
	if s.cfg.Cgroup == "" {
		return cage.Group{Still: s.stopped}
	}
	return cage.Group{Dir: filepath.Join(s.cfg.Cgroup, name)}
}
