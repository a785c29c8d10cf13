package runtime

import (
	"context"
	"errors"
	"sync"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
)

// record is what an earlier attempt at a script recorded of its fetches and searches, by their place in the script. It
// is read when it is first asked for, without the pages that are kept apart.
type record struct {
	mu       sync.Mutex
	read     bool
	fetched  map[int]schemas.Envelope
	fetching map[int]string // digests
	searched map[int]schemas.Envelope
}

// earlier gives what is recorded of the script.
func (h *host) earlier(ctx context.Context) (*record, error) {
	r := &h.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read {
		return r, nil
	}
	r.fetched, r.fetching, r.searched = map[int]schemas.Envelope{}, map[int]string{}, map[int]schemas.Envelope{}
	filter := schemas.SubjectOf(h.w.Tenant, script.Started{}.Kind(), string(h.w.Admitted.Run), "").Filter()
	for e, err := range h.s.deps.Log.ReadApart(ctx, schemas.Activity, filter, h.w.Admitted.Requested) {
		if err != nil {
			return nil, err
		}
		ev, err := e.Envelope.Decode()
		if errors.Is(err, schemas.ErrUnknownKind) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch ev := ev.(type) { // of two at one place, the first counts
		case script.Fetching:
			if _, ok := r.fetching[ev.Seq]; !ok && ev.Call == h.w.Admitted.Call {
				r.fetching[ev.Seq] = ev.Digest
			}
		case script.Fetched:
			keepFirst(r.fetched, ev.Seq, e.Envelope, ev.Call == h.w.Admitted.Call)
		case script.Searched:
			keepFirst(r.searched, ev.Seq, e.Envelope, ev.Call == h.w.Admitted.Call)
		}
	}
	r.read = true
	return r, nil
}

func keepFirst(in map[int]schemas.Envelope, seq int, e schemas.Envelope, own bool) {
	if _, ok := in[seq]; !ok && own {
		in[seq] = e
	}
}

// restored reads a recorded event with its body.
func restored[T schemas.Event](ctx context.Context, log *eventlog.Log, e schemas.Envelope) (ev T, err error) {
	if e, err = log.Restored(ctx, e); err != nil {
		return ev, err
	}
	any, err := e.Decode()
	if err != nil {
		return ev, err
	}
	ev, _ = any.(T) // its kind was seen
	return ev, nil
}

// draft is an event of the script. Its id follows from the place in the script, so that it is recorded once.
func (h *host) draft(ev schemas.Event, seq string) eventlog.Draft {
	return eventlog.Draft{Event: ev, Tenant: h.w.Tenant, Key: string(h.w.Admitted.Run), Run: h.w.Admitted.Run, Actor: string(h.w.Requested.Agent),
		Correlation: h.w.Correlation, ID: id.Derive[id.Event](string(h.w.Tenant), string(h.w.Admitted.Call), ev.Kind(), seq)}
}
