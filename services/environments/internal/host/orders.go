package host

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// flight is an order that is being carried out.
type flight struct {
	done   chan struct{}
	answer connector.Answer
}

// Do implements link.Machine. Whoever asks for an order that is under way waits for that one.
func (h *Host) Do(ctx context.Context, o connector.Order) connector.Answer {
	name, ok := strings.CutPrefix(o.Tool, machine.Connection+".")
	i := slices.IndexFunc(machine.Tools(), func(t connection.Tool) bool { return t.Name == name })
	if !ok || i < 0 {
		return failed(connector.Refused, problem.New(problem.NotFound, "this machine has no tool %.60q; is its connector older than the registry?", o.Tool))
	}
	p, err := h.at(ctx, o.Attachment)
	if err != nil {
		return failed(connector.Refused, err)
	}
	if name == "exec" {
		return h.exec(ctx, p, o)
	}
	h.mu.Lock()
	f, flying := h.flying[o.Call]
	if !flying {
		f = &flight{done: make(chan struct{})}
		h.flying[o.Call] = f
	}
	h.mu.Unlock()
	if !flying {
		go func() {
			f.answer = h.once(ctx, p, o, name, machine.Tools()[i].Writes)
			h.mu.Lock()
			delete(h.flying, o.Call)
			h.mu.Unlock()
			close(f.done)
		}()
	}
	select {
	case <-f.done:
		return f.answer
	case <-time.After(o.Patience):
		return connector.Answer{State: connector.UnderWay}
	case <-ctx.Done():
		return connector.Answer{State: connector.UnderWay}
	}
}

// receipt is what is kept of an order that changes something: that it was begun, and then its answer.
type receipt struct {
	Digest string            `json:"digest"`
	Answer *connector.Answer `json:"answer,omitempty"`
}

// growing are the tools that make files.
var growing = []string{"write_file", "edit_file", "apply_patch"}

// once carries out an order other than a command. One that changes something leaves a receipt before and after.
func (h *Host) once(ctx context.Context, p *place, o connector.Order, name string, writes bool) connector.Answer {
	if !writes {
		if o.Only {
			return connector.Answer{State: connector.NotBegun} // nothing of it would be left
		}
		return h.answer(ctx, p, o, name)
	}
	path, digest := filepath.Join(p.dir, "done", string(o.Call)+".json"), digestOf(o)
	there, err := readReceipt(path)
	switch {
	case err != nil:
		return failed(connector.Unknown, err)
	case there != nil && there.Digest != digest:
		return failed(connector.Refused, problem.New(problem.Conflict, "another order was begun under this call"))
	case there != nil && there.Answer != nil:
		return *there.Answer
	case there != nil:
		return failed(connector.Unknown, problem.New(problem.Unknown, "unknown_outcome: the connector ended while it carried this out"))
	case o.Only:
		return connector.Answer{State: connector.NotBegun}
	}
	leave, err := h.pass(p.lease.Volume)
	if err != nil {
		return failed(connector.Refused, err)
	}
	defer leave()
	if slices.Contains(growing, name) {
		if err := h.mayGrow(ctx, p); err != nil {
			return failed(connector.Refused, err)
		}
	}
	h.beginning.Lock()
	if err = calledOff(p, o.Call); err == nil {
		err = writeReceipt(path, receipt{Digest: digest})
	}
	h.beginning.Unlock()
	if problem.CodeOf(err) == problem.Cancelled {
		return failed(connector.Refused, err)
	}
	if err != nil {
		return failed(connector.Refused, problem.Wrap(err, problem.Unavailable, "the order's receipt cannot be written: %v", err))
	}
	// A crash from here on leaves an order that may have been carried out: it is answered as unknown, and not again.
	answer := h.answer(ctx, p, o, name)
	if err := writeReceipt(path, receipt{Digest: digest, Answer: &answer}); err != nil {
		h.cfg.Log.Error("an answer is not kept", "call", o.Call, "err", err)
	}
	return answer
}

func digestOf(o connector.Order) string { return permit.Digest([]byte(o.Tool), o.Args) }

func (h *Host) answer(ctx context.Context, p *place, o connector.Order, name string) connector.Answer {
	result, err := h.tool(ctx, p, name, o.Args)
	if err != nil {
		return toolError(err)
	}
	return done(result, false)
}

func (h *Host) tool(ctx context.Context, p *place, name string, args []byte) (any, error) {
	switch name {
	case "exec_read":
		return call(args, func(a machine.ExecReadArgs) (any, error) { return h.read(ctx, p, a) })
	case "exec_write":
		return call(args, func(a machine.ExecWriteArgs) (any, error) {
			return shown(p.shim.Write(ctx, a.Exec, []byte(a.Data), a.EOF))
		})
	case "exec_signal":
		return call(args, func(a machine.ExecSignalArgs) (any, error) { return shown(p.shim.Signal(ctx, a.Exec, a.Signal)) })
	case "exec_list":
		return call(args, func(struct{}) (any, error) { return h.list(ctx, p) })
	}
	return p.files.Call(ctx, name, args)
}

// call reads a tool's arguments, which a model made.
func call[A any](raw []byte, f func(A) (any, error)) (any, error) {
	a, err := machine.Args[A](raw)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	return f(a)
}

func done(result any, toolError bool) connector.Answer {
	raw, err := json.Marshal(result)
	if err != nil {
		return failed(connector.Unknown, err)
	}
	return connector.Answer{State: connector.Done, Result: raw, ToolError: toolError}
}

// toolError is a failure that the caller reads and acts on. What was not begun for want of a right, or of a machine that
// works, is none.
func toolError(err error) connector.Answer {
	d := problem.DetailOf(err)
	switch d.Code {
	case problem.Denied, problem.Unavailable, problem.Busy, problem.Cancelled:
		return failed(connector.Refused, err)
	}
	return done(map[string]string{"error": string(d.Code), "message": d.Message}, true)
}

func failed(state connector.State, err error) connector.Answer {
	d := problem.DetailOf(err)
	return connector.Answer{State: state, Code: string(d.Code), Message: d.Message}
}

// Times of commands.
const (
	defaultTimeout = 2 * time.Minute
	maxTimeout     = time.Hour
)

// exec begins a command, or finds it, and answers when it has ended; one in the background, when it runs.
func (h *Host) exec(ctx context.Context, p *place, o connector.Order) connector.Answer {
	name := string(o.Call)
	if o.Only {
		if _, err := p.shim.Get(ctx, name, 0); problem.CodeOf(err) == problem.NotFound {
			return connector.Answer{State: connector.NotBegun}
		}
	}
	a, err := machine.Args[machine.ExecArgs](o.Args)
	if err != nil {
		return toolError(problem.New(problem.Invalid, "%v", err))
	}
	if !o.Only {
		spec, err := h.spec(p, o, a)
		if err != nil {
			return toolError(err)
		}
		if makesRoom(spec.Argv) {
			defer h.forget(p)
		} else if err := h.mayGrow(ctx, p); err != nil {
			return toolError(err)
		}
		leave, err := h.pass(p.lease.Volume)
		if err != nil {
			return toolError(err)
		}
		h.beginning.Lock()
		if err = calledOff(p, o.Call); err == nil {
			_, err = p.shim.Begin(ctx, spec)
		}
		h.beginning.Unlock()
		leave()
		if err != nil {
			return toolError(err)
		}
		h.follow(p, name)
	}
	wait := o.Patience
	if a.Background {
		wait = 0
	}
	e, err := p.shim.Get(ctx, name, wait)
	switch {
	case err != nil:
		return connector.Answer{State: connector.UnderWay} // it was begun: the shim is asked again
	case e.Running() && !a.Background:
		return connector.Answer{State: connector.UnderWay}
	case e.Reason == shim.Denied:
		return failed(connector.Refused, problem.New(problem.Denied, "%s", e.Message))
	case e.Reason == shim.NotBegun:
		return toolError(problem.New(problem.Invalid, "the command could not be started: %s", e.Message))
	case e.Reason == shim.Lost:
		return failed(connector.Unknown, problem.New(problem.Unknown, "unknown_outcome: %s", e.Message))
	}
	out := execOf(e)
	if err := h.addOutput(ctx, p, &out); err != nil {
		return connector.Answer{State: connector.UnderWay}
	}
	return done(out, e.Reason != shim.Exited && !e.Running() || e.Code != 0)
}

// spec holds a command against the policy, and makes it whole.
func (h *Host) spec(p *place, o connector.Order, a machine.ExecArgs) (shim.Spec, error) {
	s := shim.Spec{ID: string(o.Call), Digest: digestOf(o), Argv: a.Argv, Stdin: []byte(a.Stdin), KeepIn: a.Background && a.Stdin == "", Timeout: time.Duration(a.Timeout) * time.Second}
	switch {
	case (len(a.Argv) > 0) == (a.Command != ""):
		return s, problem.New(problem.Invalid, "give argv or command, and not both")
	case s.Timeout < 0 || s.Timeout > maxTimeout:
		return s, problem.New(problem.Invalid, "timeout_s is outside 1 to %d", int(maxTimeout.Seconds()))
	case s.Timeout == 0 && !a.Background:
		s.Timeout = defaultTimeout
	case s.Timeout == 0:
		s.Timeout = maxTimeout
	}
	if a.Command != "" {
		if err := h.cfg.Policy.MayShell(); err != nil {
			return s, err
		}
		s.Argv = []string{"/bin/sh", "-c", a.Command}
	}
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
	for _, one := range h.driver.env() {
		if name, value, ok := strings.Cut(one, "="); ok && validName(name) {
			env[name] = value
		}
	}
	env["HOME"], env["TMPDIR"] = p.volume, filepath.Join(p.volume, ".tmp")
	for name, value := range a.Env {
		if !validName(name) {
			return s, problem.New(problem.Invalid, "%.60q is no name of a variable", name)
		}
		if err := h.cfg.Policy.MaySet(name); err != nil {
			return s, err
		}
		env[name] = value
	}
	for name, value := range env {
		s.Env = append(s.Env, name+"="+value)
	}
	slices.Sort(s.Env)
	cwd, err := p.files.Dir(a.Cwd)
	if err != nil {
		return s, err
	}
	s.Cwd = cwd
	return s, nil
}

func validName(name string) bool {
	for i, r := range name {
		if (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 256
}

// Cancel implements link.Machine. A call that was not begun is marked, so that an order that comes late begins nothing.
func (h *Host) Cancel(ctx context.Context, c connector.Cancel) connector.Answer {
	if _, err := id.Parse[id.Call](string(c.Call)); err != nil {
		return failed(connector.Refused, problem.Wrap(err, problem.Invalid, "call: %v", err))
	}
	h.beginning.Lock()
	defer h.beginning.Unlock()
	found := connector.Answer{State: connector.NotBegun}
	for _, p := range h.all() {
		e, err := p.shim.Stop(ctx, string(c.Call), shim.Cancelled, c.Grace)
		switch {
		case err == nil:
			out := execOf(e)
			return done(out, true)
		case problem.CodeOf(err) != problem.NotFound:
			return failed(connector.Unknown, err)
		}
		if r, err := readReceipt(filepath.Join(p.dir, "done", string(c.Call)+".json")); err != nil || r != nil {
			if r != nil && r.Answer != nil {
				return *r.Answer
			}
			return failed(connector.Unknown, problem.New(problem.Unknown, "it was begun"))
		}
		if err := writeReceipt(offFile(p, c.Call), "the call was called off before it began"); err != nil {
			found = failed(connector.Unknown, err)
		}
	}
	return found
}

func offFile(p *place, c id.Call) string { return filepath.Join(p.dir, "done", string(c)+".off") }

// calledOff says that a call was cancelled before it was begun.
func calledOff(p *place, c id.Call) error {
	if _, err := os.Stat(offFile(p, c)); err == nil {
		return problem.New(problem.Cancelled, "the call was called off before it began")
	}
	return nil
}

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
	between := "\n[... " + count(e.Bytes-2*shownHalf) + " bytes of output are not shown here; exec_read has them ...]\n"
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
			out.WriteString("\n[... " + count(p.Lost) + " bytes were not kept ...]\n")
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
			one.Base64 = encode(piece.Data)
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
	for _, e := range list[:min(len(list), 100)] {
		out.Execs = append(out.Execs, execOf(e))
	}
	return out, nil
}
