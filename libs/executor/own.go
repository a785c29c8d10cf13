package executor

import (
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of the admissions that are remembered by who made them. What is over them is read back, as what others made is.
const (
	maxOwn      = 1024
	maxOwnBytes = 16 << 10 // of what one call was asked with: its arguments, and what its client said of itself
	ownLife     = 2 * time.Second
)

// Made is an admission that this process made itself, in answer to the first hearing of its request, and that the stream
// took as the first under its id.
type Made struct {
	Tenant    id.Tenant
	Requested call.Requested
	Asked     time.Time // when the call was requested
	Admitted  call.Admitted
	Seq       uint64 // of the admission
	Permit    permit.Claims
}

// own remembers what was made a moment ago. A broker hears most of its own admissions at once; reading back what it has just
// stored, and verifying what it has just signed, would be most of what executing a call costs.
type own struct {
	mu    sync.Mutex
	made  map[id.Call]Made
	order []id.Call // oldest first; those that were taken stay in it until they are the oldest
}

func (o *own) put(m Made) {
	size := len(m.Requested.Body.Args) + len(m.Requested.Body.Input)
	if m.Requested.Client != nil {
		size += len(m.Requested.Client.Capabilities)
	}
	if size > maxOwnBytes {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil {
		o.made = map[id.Call]Made{}
	}
	if len(o.order) == maxOwn {
		delete(o.made, o.order[0])
		o.order = o.order[1:]
	}
	o.made[m.Admitted.Call] = m
	o.order = append(o.order, m.Admitted.Call)
}

// take gives what is known of an admission as it is heard, once. It has to be the very message that was stored, brought to
// nobody before and moments ago: then nobody else can have acted on the call, and it has no outcome.
func (o *own) take(c id.Call, h bus.Heard, now time.Time) (Made, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m, ok := o.made[c]
	delete(o.made, c)
	return m, ok && !h.Again() && h.Seq == m.Seq && h.At.Tenant == m.Tenant && now.Sub(m.Asked) < ownLife
}

// Made notes an admission of this process, so that Accept need not read it back.
func (g *Gate) Made(m Made) { g.own.put(m) }
