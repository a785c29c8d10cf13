package executor

import (
	"time"

	"golang.org/x/time/rate"
)

// Bounds of how fast one call may speak to its client. A server that says more than anybody reads would have the bus, and every
// gateway on it, carry what nobody reads.
const (
	relayedPerSecond      = 200
	relayedAtOnce         = 1_000
	relayedBytesPerSecond = 4 << 20
	relayedBytesAtOnce    = 4 << 20
)

// pace lets through what is within the bounds.
type pace struct{ words, bytes *rate.Limiter }

func newPace() pace {
	return pace{rate.NewLimiter(relayedPerSecond, relayedAtOnce), rate.NewLimiter(relayedBytesPerSecond, relayedBytesAtOnce)}
}

// allow takes one word of some bytes, if there is room for both now: what is left out spends neither. One at a time asks.
func (p pace) allow(size int, now time.Time) bool {
	return p.words.TokensAt(now) >= 1 && p.bytes.TokensAt(now) >= float64(size) && p.words.AllowN(now, 1) && p.bytes.AllowN(now, size)
}
