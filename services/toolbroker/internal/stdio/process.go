package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// Bounds of a process.
const (
	endWithin     = 2 * time.Second // after its input ended, before it is killed
	perSecond     = 8 << 20         // bytes of its output, sustained
	atOnce        = 16 << 20
	maxLine       = 64 << 10 // of what it writes to standard error; longer lines are left out
	shownLine     = 1 << 10
	linesPerBurst = 20 // that are logged of standard error in ten seconds
)

// writeWithin is how long a program may leave its input unread while somebody writes to it. A variable for tests.
var writeWithin = 20 * time.Second

// Process is a program that runs. Reading and writing it is reading its standard output and writing its standard input.
type Process struct {
	cmd   *exec.Cmd
	in    input
	out   *os.File
	ended chan struct{} // it is gone, and its group
	told  sync.WaitGroup

	mu   sync.Mutex
	left float64
	at   time.Time
}

// Start runs a program. The credential is in its environment from then on, where its user's other processes can read it.
func Start(p Program, credential vault.Secret, log *slog.Logger) (*Process, error) {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir = p.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Env = []string{} // not nil, which would be the broker's own
	for name, value := range p.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if p.CredentialEnv != "" && !credential.Empty() {
		cmd.Env = append(cmd.Env, p.CredentialEnv+"="+credential.Reveal())
	}
	if err := alone(cmd); err != nil {
		return nil, err
	}
	failed := func(err error) (*Process, error) {
		return nil, problem.Wrap(err, problem.Unavailable, "the program %.200s does not start", p.Command[0])
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	in, ok := pipe.(input)
	if !ok {
		pipe.Close()
		return nil, problem.New(problem.Internal, "writing to a program cannot be bounded here")
	}
	out, outEnd, err := os.Pipe()
	if err != nil {
		in.Close()
		return failed(err)
	}
	errs, errsEnd, err := os.Pipe()
	if err != nil {
		in.Close()
		out.Close()
		outEnd.Close()
		return failed(err)
	}
	cmd.Stdout, cmd.Stderr = outEnd, errsEnd
	err = cmd.Start()
	outEnd.Close()
	errsEnd.Close()
	if err != nil {
		in.Close()
		out.Close()
		errs.Close()
		return failed(err)
	}
	s := &Process{cmd: cmd, in: in, out: out, ended: make(chan struct{}), left: atOnce, at: time.Now()}
	s.told.Go(func() { tell(errs, credential, log.With("program", p.Command[0], "pid", cmd.Process.Pid)) })
	s.told.Go(func() {
		defer close(s.ended)
		settled(cmd) // it ended, and its number is not another's yet
		killGroup(cmd)
		_ = cmd.Wait() // how it ended says nothing that its connection does not
		// What left the group may hold the other ends: nothing waits for it.
		errs.Close()
	})
	return s, nil
}

// Read implements io.Reader. A program that says too much is read slowly, and waits for that.
func (s *Process) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	s.mu.Lock()
	now := time.Now()
	s.left = min(atOnce, s.left+perSecond*now.Sub(s.at).Seconds()) - float64(n)
	s.at = now
	wait := time.Duration(max(-s.left, 0) / perSecond * float64(time.Second))
	s.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-s.ended:
		}
	}
	return n, err
}

// input is what a program reads: what is written to it waits for the program, and that has to end.
type input interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// Write implements io.Writer, for one at a time. A program that does not take what is written to it is ended: whoever
// writes would wait for ever, and the half of a message that it may have is no message.
func (s *Process) Write(p []byte) (int, error) {
	if err := s.in.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return 0, err
	}
	n, err := s.in.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.in.Close() // what others still have to write is not written
		if !s.Ended() {
			killGroup(s.cmd)
		}
	}
	return n, err
}

// Ended says whether it is gone.
func (s *Process) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Close ends the process and its group, and waits until it is gone. It may be called again.
func (s *Process) Close() error {
	_ = s.in.Close() // it may be gone
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	select {
	case <-s.ended:
	case <-ctx.Done():
		killGroup(s.cmd)
		<-s.ended
	}
	_ = s.out.Close() // it may be closed
	s.told.Wait()
	return nil
}

// tell logs what a program writes to standard error: some of it, and never its credential.
func tell(from io.Reader, credential vault.Secret, log *slog.Logger) {
	scrub := scrubber(credential)
	in := bufio.NewReaderSize(from, 4096)
	var line []byte
	long, shown, since, dropped := false, 0, time.Now(), 0
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		long = long || len(line) > maxLine
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if text := strings.TrimSpace(string(bytes.ToValidUTF8(line, nil))); text != "" || long {
			if now := time.Now(); now.Sub(since) > 10*time.Second {
				if dropped > 0 {
					log.Warn("a program wrote more to standard error than is logged", "lines", dropped)
				}
				shown, since, dropped = 0, now, 0
			}
			switch {
			case long || shown >= linesPerBurst:
				dropped++
			default:
				shown++
				text = scrub.Replace(text) // whole, before it is cut: a part would not be found
				log.Info("a program says", "text", text[:min(len(text), shownLine)])
			}
		}
		line, long = line[:0], false
		if err != nil {
			return
		}
	}
}

// scrubber replaces a credential, in the spellings in which programs write such things.
func scrubber(credential vault.Secret) *strings.Replacer {
	var pairs []string
	for _, part := range append(strings.Split(credential.Reveal(), "\n"), credential.Reveal()) {
		if part = strings.TrimSpace(part); len(part) < 4 {
			continue
		}
		for _, spelt := range []string{part, url.QueryEscape(part), url.PathEscape(part), base64.StdEncoding.EncodeToString([]byte(part)), base64.RawURLEncoding.EncodeToString([]byte(part))} {
			pairs = append(pairs, spelt, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...)
}
