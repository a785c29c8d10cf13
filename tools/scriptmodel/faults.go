package scriptmodel

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// faults counts how often each turn of each conversation went wrong.
type faults struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]int
}

// next is the fault for a request, or nil.
func (f *faults) next(turn Turn, c *conversation) *Fault {
	if turn.Fault == nil || turn.Fault.Times == 0 {
		return turn.Fault
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%d %s", c.turns, c.prompt))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[key] >= turn.Fault.Times {
		return nil
	}
	f.seen[key]++
	return turn.Fault
}
