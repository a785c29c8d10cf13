package gitrelay

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// Push is what one push may do: to one ref, which becomes Commit where that is given.
type Push struct {
	Ref    string
	Commit string
}

// maxCommands is how long the commands of a push may be, in bytes. One command and what both sides can do fits easily.
const maxCommands = 16 << 10

// Check reads the commands of a push (gitprotocol-pack, "Reference Update Request") and gives the whole body, with what
// was read in front. A push of more than its one ref, of another, of a deletion, or of another commit is denied, before
// anything of it was sent. An empty list of commands is how git asks whether it may push at all.
func (p Push) Check(body io.Reader) (io.Reader, error) {
	var read bytes.Buffer
	commands := 0
	for {
		line, err := packet(body, &read)
		if err != nil {
			return nil, err
		}
		if line == nil { // flush
			break
		}
		text, _, _ := strings.Cut(string(line), "\x00") // what the client can do follows
		text = strings.TrimSuffix(text, "\n")
		if shallow, ok := strings.CutPrefix(text, "shallow "); ok && objectID(shallow) && commands == 0 {
			continue
		}
		if commands++; commands > 1 {
			return nil, problem.New(problem.Denied, "a push of more than one ref: the call is for %s alone", p.Ref)
		}
		if err := p.command(text); err != nil {
			return nil, err
		}
	}
	if commands == 0 {
		var more [1]byte
		if n, err := io.ReadFull(body, more[:]); n > 0 || err != io.EOF {
			return nil, problem.New(problem.Denied, "a push that names no ref")
		}
		return &read, nil
	}
	return io.MultiReader(&read, body), nil
}

func (p Push) command(text string) error {
	f := strings.SplitN(text, " ", 3)
	if len(f) != 3 || !objectID(f[0]) || !objectID(f[1]) || len(f[0]) != len(f[1]) {
		return problem.New(problem.Invalid, "the push cannot be read")
	}
	switch {
	case f[2] != p.Ref:
		return problem.New(problem.Denied, "a push to %.200q: the call is for %s", f[2], p.Ref)
	case strings.Trim(f[1], "0") == "":
		return problem.New(problem.Denied, "a push that deletes %s", p.Ref)
	case p.Commit != "" && f[1] != p.Commit:
		return problem.New(problem.Denied, "a push of commit %s: the call is for %s", f[1], p.Commit)
	}
	return nil
}

func objectID(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

// packet reads one pkt-line (gitprotocol-common) and copies it; nil is a flush.
func packet(from io.Reader, copied *bytes.Buffer) ([]byte, error) {
	garbled := func(err error) error {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return problem.New(problem.Invalid, "the push ends within its commands")
		}
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, garbled(err)
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	if err != nil || n > 0 && n <= 4 {
		return nil, problem.New(problem.Invalid, "the push cannot be read")
	}
	copied.Write(head[:])
	if n == 0 {
		return nil, nil
	}
	if copied.Len()+int(n) > maxCommands {
		return nil, problem.New(problem.TooLarge, "the commands of the push are over %d bytes", maxCommands)
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(from, line); err != nil {
		return nil, garbled(err)
	}
	copied.Write(line)
	return line, nil
}
