package host

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

func execOf(e shim.Exec) machine.Exec {
	out := machine.Exec{Exec: e.ID, State: "running", Bytes: e.Bytes, Lost: e.Lost, Isolation: isolationWords(e), Survivors: e.Survivors}
	if e.Running() {
		return out
	}
	out.State, out.Reason, out.Signal, out.SHA256, out.Millis = "exited", e.Reason, e.Signal, e.SHA256, e.Ended.Sub(e.Began).Milliseconds()
	if e.Reason == shim.Lost {
		out.State = "unknown"
	} else if e.Signal == "" {
		code := e.Code
		out.Code = &code
	}
	return out
}

func isolationWords(e shim.Exec) string {
	var words []string
	for _, w := range []struct {
		holds bool
		name  string
	}{
		{e.Isolation.NoNewPrivs, "no_new_privs"}, {e.Isolation.Landlock > 0, "landlock"}, {e.Isolation.Seccomp, "seccomp"},
		{e.Isolation.Cgroup, "cgroup"}, {e.Isolation.Network, "network"}, {e.Isolation.Container, "container"},
	} {
		if w.holds {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, "+")
}

func shown(e shim.Exec, err error) (any, error) { return execOf(e), err }

// A result shows this much of the head of an output, and as much of its tail, in bytes.
const shownHalf = 24 << 10

// addOutput puts head and tail of a command's output into its result.
func (h *Host) addOutput(ctx context.Context, p *place, e *machine.Exec) error {
	if e.Bytes <= 2*shownHalf {
		out, err := p.shim.Read(ctx, e.Exec, 0, 2*shownHalf, 0)
		if err != nil {
			return err
		}
		e.Stdout, e.Stderr = texts(out.Pieces)
		return nil
	}
	head, err := p.shim.Read(ctx, e.Exec, 0, shownHalf, 0)
	if err != nil {
		return err
	}
	tail, err := p.shim.Read(ctx, e.Exec, e.Bytes-shownHalf, shownHalf, 0)
	if err != nil {
		return err
	}
	e.Clipped = true
	headOut, headErr := texts(head.Pieces)
	tailOut, tailErr := texts(tail.Pieces)
	between := fmt.Sprintf("\n[... %d bytes of output are not shown here; exec_read has them ...]\n", e.Bytes-2*shownHalf)
	e.Stdout, e.Stderr = headOut, headErr
	if tailOut != "" || headOut != "" {
		e.Stdout += between + tailOut
	}
	if tailErr != "" || headErr != "" {
		e.Stderr += between + tailErr
	}
	return nil
}

func texts(pieces []shim.Piece) (stdout, stderr string) {
	var out, err strings.Builder
	for _, p := range pieces {
		switch p.Stream {
		case 1:
			out.Write(p.Data)
		case 2:
			err.Write(p.Data)
		default:
			fmt.Fprintf(&out, "\n[... %d bytes were not kept ...]\n", p.Lost)
		}
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD"), strings.ToValidUTF8(err.String(), "\uFFFD")
}

var streams = map[int]string{1: "stdout", 2: "stderr", 3: "gap"}

// Bounds of exec_read.
const (
	defaultRead = 64 << 10
	maxRead     = 256 << 10
	maxWait     = time.Minute
)

func (h *Host) read(ctx context.Context, p *place, a machine.ExecReadArgs) (any, error) {
	limit := a.Max
	if limit == 0 {
		limit = defaultRead
	}
	if limit < 1 || limit > maxRead || a.After < 0 || a.Wait < 0 || time.Duration(a.Wait)*time.Second > maxWait {
		return nil, problem.New(problem.Invalid, "max_bytes is outside 1 to %d, wait_s outside 0 to 60, or after_offset negative", maxRead)
	}
	if err := ofCall(a.Exec); err != nil {
		return nil, err
	}
	got, err := p.shim.Read(ctx, a.Exec, a.After, limit, time.Duration(a.Wait)*time.Second)
	if err != nil {
		return nil, err
	}
	out := machine.Output{Exec: a.Exec, Offset: a.After, Next: got.Next, Pieces: []machine.Piece{}}
	for _, piece := range got.Pieces {
		one := machine.Piece{Stream: streams[piece.Stream], Lost: piece.Lost}
		if utf8.Valid(piece.Data) {
			one.Text = string(piece.Data)
		} else {
			one.Base64 = base64.StdEncoding.EncodeToString(piece.Data)
		}
		out.Pieces = append(out.Pieces, one)
	}
	if !got.Exec.Running() && got.Next >= got.Exec.Bytes {
		end := execOf(got.Exec)
		out.End = &end
	}
	return out, nil
}

func (h *Host) list(ctx context.Context, p *place) (any, error) {
	list, err := p.shim.List(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		Execs []machine.Exec `json:"execs"`
	}{[]machine.Exec{}}
	for _, e := range list {
		if ofCall(e.ID) == nil && len(out.Execs) < 100 {
			out.Execs = append(out.Execs, execOf(e))
		}
	}
	return out, nil
}

// ofCall says whether a command is one of a call. What a person runs, and the browser, is beside: no call reads it or writes to it.
func ofCall(exec string) error {
	if _, err := id.Parse[id.Call](exec); err != nil {
		return problem.New(problem.Invalid, "%.80q is no command's id", exec)
	}
	return nil
}
