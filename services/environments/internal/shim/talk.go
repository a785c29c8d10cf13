package shim

import (
	"time"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
)

// Bounds of a shim.
const (
	maxSpec     = 2 << 20 // bytes of what is asked
	maxExecs    = 1000    // of one attachment that are in memory; the others' records are on the disk
	keepFor     = 24 * time.Hour
	SpoolLimit  = 64 << 20  // bytes of one command's output
	keptOutput  = 512 << 20 // of all commands that have ended; the oldest is dropped first
	drainWithin = time.Second
	endGrace    = 2 * time.Second // of a timeout
)

// Config is one attachment's.
type Config struct {
	Dir    string     `json:"dir"` // the shim's own, which no command sees
	Rules  cage.Rules `json:"rules"`
	Cgroup string     `json:"cgroup,omitempty"` // of the attachment; empty: there are none
	Execs  int        `json:"execs"`            // at once
	UID    int        `json:"uid"`              // of commands; 0: the shim's own
	GID    int        `json:"gid"`
}

// Spec is one command. ID and Digest make it the same command however often it is asked for.
type Spec struct {
	ID      string        `json:"id"`
	Digest  string        `json:"digest"`
	Argv    []string      `json:"argv"`
	Cwd     string        `json:"cwd"`
	Env     []string      `json:"env"`
	Stdin   []byte        `json:"stdin,omitempty"`
	KeepIn  bool          `json:"keep_in,omitempty"` // leave standard input open after Stdin
	Timeout time.Duration `json:"timeout"`           // 0: none
	// Control is of a program that the machine's policy names by itself, and that is talked to over descriptors 3 and 4 in place of 0
	// and 1.
	Control bool  `json:"control,omitempty"`
	TTY     *Size `json:"tty,omitempty"` // at a terminal of this size; stdout and stderr are one then
}

// Size is a terminal's.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Reasons of an end.
const (
	Exited    = "exited"
	TimedOut  = "timeout"
	Cancelled = "cancelled"
	Revoked   = "revoked"
	TooLarge  = "volume_size" // its volume held more than it may
	Hangup    = "hangup"      // whoever was at its terminal went away
	Lost      = "lost"        // the shim ended before its command: how that ended is not known
	NotBegun  = "not_started" // the command could not be started
	Denied    = "denied"      // its program may not be started
)

// Exec is how a command stands.
type Exec struct {
	ID        string                `json:"id"`
	Digest    string                `json:"digest"`
	Argv      []string              `json:"argv"`
	Began     time.Time             `json:"began"`
	Ended     time.Time             `json:"ended,omitzero"` // zero: it runs
	Reason    string                `json:"reason,omitempty"`
	Code      int                   `json:"code"`
	Signal    string                `json:"signal,omitempty"`
	Message   string                `json:"message,omitempty"` // why it was not started
	Bytes     int64                 `json:"bytes"`
	Lost      int64                 `json:"lost,omitempty"`
	SHA256    string                `json:"sha256,omitempty"`
	Fed       int64                 `json:"fed,omitempty"` // the offset of what it was last given by Feed
	Survivors int                   `json:"survivors"`
	Isolation environment.Isolation `json:"isolation"`
}

// Running says that a command has not ended.
func (e Exec) Running() bool { return e.Ended.IsZero() }

// Output is a piece of output, as the spool has it.
type Output struct {
	Pieces []Piece `json:"pieces"`
	Next   int64   `json:"next"`
	Exec   Exec    `json:"exec"`
}

// Piece is output of one stream: 1 stdout, 2 stderr, 3 a gap.
type Piece struct {
	Stream int    `json:"stream"`
	Data   []byte `json:"data,omitempty"`
	Lost   int64  `json:"lost,omitempty"`
}

// Ended is what the end of an attachment came to.
type Ended struct {
	Killed    int `json:"killed"`
	Survivors int `json:"survivors"`
}

type wordSignal struct {
	Signal string `json:"signal"`
}

type wordInput struct {
	Data []byte `json:"data"`
	EOF  bool   `json:"eof"`
}

// Fed is a piece of what a command is fed. Size and Signal take their place in it: Data counts, and is not written then.
type Fed struct {
	From   int64  `json:"from"` // the offset where it begins
	Data   []byte `json:"data,omitempty"`
	EOF    bool   `json:"eof,omitempty"` // behind it, unless the command is at a terminal
	Size   *Size  `json:"size,omitempty"`
	Signal string `json:"signal,omitempty"` // named without SIG
}

type wordEnd struct {
	Grace  time.Duration `json:"grace"`
	Reason string        `json:"reason"`
}
