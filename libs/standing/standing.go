// Package standing knows what calls rest on: which grants, agents and connections are there, and which are no more, as
// the control stream has them.
package standing

import (
	"sync"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// Thing is a grant, an agent or a connection. Their ids are told apart by their prefix.
type Thing struct {
	Tenant id.Tenant
	ID     string
}

// Set keeps what was said last of each thing. Its zero value is ready.
type Set struct {
	mu   sync.RWMutex
	last map[Thing]said
}

type said struct {
	seq    uint64
	stands bool
}

// Kinds lists what Apply takes.
func Kinds() []string {
	return []string{grant.Created{}.Kind(), grant.Revoked{}.Kind(), agent.Defined{}.Kind(), connection.Defined{}.Kind()}
}

// Apply takes an event, and says whether a thing is no more by it. Events may come again and, between kinds of one thing,
// out of order: the highest sequence counts.
func (s *Set) Apply(e eventlog.Stored) (t Thing, ended bool) {
	ev, err := e.Envelope.Decode()
	if err != nil {
		return Thing{}, false // of no kind that matters here
	}
	now := said{e.Seq, true}
	switch ev := ev.(type) {
	case grant.Created:
	case grant.Revoked:
		now.stands = false
	case agent.Defined:
		now.stands = !ev.Removed
	case connection.Defined:
		now.stands = !ev.Removed
	default:
		return Thing{}, false
	}
	t = Thing{e.At.Tenant, e.At.Key}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[t].seq >= e.Seq {
		return t, false
	}
	if s.last == nil {
		s.last = map[Thing]said{}
	}
	s.last[t] = now
	return t, !now.stands
}

// Stands says that a thing is there.
func (s *Set) Stands(t Thing) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.last[t].stands
}

// Gone says that a thing was there and is no more.
func (s *Set) Gone(t Thing) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now, known := s.last[t]
	return known && !now.stands
}
