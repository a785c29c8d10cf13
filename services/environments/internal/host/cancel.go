package host

import (
	"context"
	"os"
	"path/filepath"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Cancel implements link.Machine. A call that was not begun is marked, so that an order that comes late begins nothing.
func (h *Host) Cancel(ctx context.Context, c connector.Cancel) connector.Answer {
	if _, err := id.Parse[id.Call](string(c.Call)); err != nil {
		return failed(connector.Refused, problem.Wrap(err, problem.Invalid, "call: %v", err))
	}
	h.stopFlights(func(call id.Call, _ *flight) bool { return call == c.Call })
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
			// One of several commands may have ended, and the next is not to begin.
			_ = writeReceipt(offFile(p, c.Call), "the call was called off while it was carried out") // else it ends by itself
			if e, err := h.engine(ctx); err == nil && e != nil {
				if err := e.StopCall(ctx, p.lease.Attachment, c.Call); err != nil {
					h.cfg.Log.Warn("a call's container is not ended yet; its time will", "call", c.Call, "err", err)
				}
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
