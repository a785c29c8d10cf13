package executor

import "time"

// Bounds of how fast one call may speak to its client. A server that says more than anybody reads would have the bus, and every
// gateway on it, carry what nobody reads.
const (
	relayedPerSecond      = 200
	relayedAtOnce         = 1_000
	relayedBytesPerSecond = 4 << 20
	relayedBytesAtOnce    = 4 << 20
)

// pace lets through what is within the bounds. It begins full.
type pace struct {
	spent, bytes float64 // of what may be said at once
	at           time.Time
}

// allow takes one word of some bytes, if there is room for it now.
func (p *pace) allow(size int, now time.Time) bool {
	since := max(now.Sub(p.at).Seconds(), 0)
	p.spent, p.bytes, p.at = max(p.spent-relayedPerSecond*since, 0), max(p.bytes-relayedBytesPerSecond*since, 0), now
	if p.spent+1 > relayedAtOnce || p.bytes+float64(size) > relayedBytesAtOnce {
		return false
	}
	p.spent, p.bytes = p.spent+1, p.bytes+float64(size)
	return true
}
