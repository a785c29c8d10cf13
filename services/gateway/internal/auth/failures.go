package auth

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of failing: how often an address may, in how long, and how many addresses are told apart.
const (
	failureWindow = time.Minute
	maxFailures   = 30
	maxAddresses  = 4096
)

// failures counts who failed to authenticate. Tokens cannot be guessed; this bounds the look-ups that trying costs.
type failures struct {
	mu     sync.Mutex
	began  time.Time
	counts map[netip.Prefix]int
}

func newFailures() *failures { return &failures{counts: map[netip.Prefix]int{}} }

func (f *failures) exhausted(who netip.Prefix, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn(now)
	return f.counts[f.slot(who)] >= maxFailures
}

func (f *failures) note(who netip.Prefix, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn(now)
	f.counts[f.slot(who)]++
}

func (f *failures) turn(now time.Time) {
	if now.Sub(f.began) >= failureWindow {
		f.began = now
		clear(f.counts)
	}
}

// slot is where an address is counted. When there are too many, the rest share one.
func (f *failures) slot(who netip.Prefix) netip.Prefix {
	if _, known := f.counts[who]; known || len(f.counts) < maxAddresses {
		return who
	}
	return netip.Prefix{}
}

// remote is the address that a request came from; of IPv6 the network, since one host has all of it. Headers of
// proxies are not looked at: whoever sends a request can write them.
func remote(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap(), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.WithZone("").Prefix(bits) // the bits suit the address
	return p
}

// acquaintances remembers tokens that were valid, so that failures of others behind the same address do not shut
// their holders out.
type acquaintances struct {
	mu   sync.Mutex
	seen map[Hash]struct{}
}

const maxAcquaintances = 4096

func (a *acquaintances) has(h Hash) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.seen[h]
	return ok
}

func (a *acquaintances) add(h Hash) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil || len(a.seen) >= maxAcquaintances {
		a.seen = map[Hash]struct{}{}
	}
	a.seen[h] = struct{}{}
}

// drop forgets a token, and says whether it was known.
func (a *acquaintances) drop(h Hash) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.seen[h]
	delete(a.seen, h)
	return known
}
