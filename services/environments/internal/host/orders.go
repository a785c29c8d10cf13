package host

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

// flight is an order that is being carried out.
type flight struct {
	at     *place
	stop   context.CancelCauseFunc // nil: it is short, and goes on to its end
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
		f = &flight{at: p, done: make(chan struct{})}
		h.flying[o.Call] = f
	}
	work := ctx
	if !flying && slices.Contains(stoppable, name) {
		work, f.stop = context.WithCancelCause(ctx)
	}
	h.mu.Unlock()
	if !flying {
		go func() {
			f.answer = h.once(work, p, o, name, machine.Tools()[i].Writes)
			if f.stop != nil {
				f.stop(nil)
			}
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

// stoppable are the tools that take long, and that a cancellation ends in the middle.
var stoppable = []string{"http_private", "http_private_send", "watch"}

// stopFlights ends what is carried out in the middle, where that can be.
func (h *Host) stopFlights(of func(id.Call, *flight) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, f := range h.flying {
		if f.stop != nil && of(c, f) {
			f.stop(problem.New(problem.Cancelled, "the call was called off"))
		}
	}
}

// growing are the tools that make files.
var growing = []string{"write_file", "edit_file", "apply_patch", "git_clone", "git_fetch", "git_commit"}

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
	if strings.HasPrefix(name, "git_") {
		return h.git(ctx, p, o, name)
	}
	var result any
	var err error
	if strings.HasPrefix(name, "containers_") {
		result, err = h.contain(ctx, p, o, name)
	} else {
		result, err = h.tool(ctx, p, name, o.Args)
	}
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
			if err := ofCall(a.Exec); err != nil {
				return nil, err
			}
			return shown(p.shim.Write(ctx, a.Exec, []byte(a.Data), a.EOF))
		})
	case "exec_signal":
		return call(args, func(a machine.ExecSignalArgs) (any, error) {
			if err := ofCall(a.Exec); err != nil {
				return nil, err
			}
			return shown(p.shim.Signal(ctx, a.Exec, a.Signal))
		})
	case "watch":
		return call(args, func(a machine.WatchArgs) (any, error) { return h.watch(ctx, p, a) })
	case "test_results":
		return call(args, func(a machine.TestResultsArgs) (any, error) { return h.testResults(ctx, p, a) })
	case "http_private":
		return call(args, func(a machine.HTTPArgs) (any, error) { return h.http.Get(ctx, a) })
	case "http_private_send":
		return call(args, func(a machine.HTTPArgs) (any, error) { return h.http.Send(ctx, a) })
	case "exec_list":
		return call(args, func(struct{}) (any, error) { return h.list(ctx, p) })
	}
	if strings.HasPrefix(name, "browser_") {
		return h.browse(ctx, p, name, args)
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
	case problem.Unknown:
		return failed(connector.Unknown, err)
	}
	return done(map[string]string{"error": string(d.Code), "message": d.Message}, true)
}

func failed(state connector.State, err error) connector.Answer {
	d := problem.DetailOf(err)
	return connector.Answer{State: state, Code: string(d.Code), Message: d.Message}
}
