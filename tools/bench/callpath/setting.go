package callpath

import (
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Transport is how services reach the NATS server.
type Transport string

// The transports.
const (
	InProcess Transport = "in-process"
	TCP       Transport = "tcp"
)

// Sync is when NATS fsyncs what it stores.
type Sync string

// The ways to sync.
const (
	Interval Sync = "interval" // at times: not safe against loss of power
	Always   Sync = "always"   // before each acknowledgement
)

// interval is NATS's own default.
const interval = 2 * time.Minute

// Setting is one house that is measured.
type Setting struct {
	Transport Transport `json:"transport"`
	Sync      Sync      `json:"sync"`
}

// Config says what to measure and for how long.
type Config struct {
	Transports []Transport
	Syncs      []Sync
	Callers    []int         // how many call at once
	Rounds     int           // how often each way has its turn
	Round      time.Duration // how long a turn is
	Revokes    int           // how many grants are revoked per setting; 0 leaves the second table out
	InFlight   int           // calls in flight under each of them
}

// Default takes under 90 seconds.
func Default() Config {
	return Config{
		Transports: []Transport{InProcess, TCP}, Syncs: []Sync{Interval, Always}, Callers: []int{1, 16},
		Rounds: 5, Round: 300 * time.Millisecond, Revokes: 20, InFlight: 16,
	}
}

func (c Config) validate() error {
	switch {
	case len(c.Transports) == 0 || len(c.Syncs) == 0 || len(c.Callers) == 0:
		return problem.New(problem.Invalid, "there is nothing to measure: name a transport, a sync and a number of callers")
	case c.Rounds < 1 || c.Rounds > 1000 || c.Round < 10*time.Millisecond || c.Round > time.Minute:
		return problem.New(problem.Invalid, "%d rounds of %s: give 1 to 1000 of 10ms to 1m", c.Rounds, c.Round)
	case c.Revokes < 0 || c.Revokes > 1000 || c.InFlight < 1 || c.InFlight > 64:
		return problem.New(problem.Invalid, "%d revocations of %d calls: give up to 1000 of 1 to 64", c.Revokes, c.InFlight)
	}
	for _, n := range c.Callers {
		if n < 1 || n > 256 {
			return problem.New(problem.Invalid, "%d callers are outside 1 to 256", n)
		}
	}
	for _, t := range c.Transports {
		if t != InProcess && t != TCP {
			return problem.New(problem.Invalid, "transport %q is not %s or %s", t, InProcess, TCP)
		}
	}
	for _, s := range c.Syncs {
		if s != Interval && s != Always {
			return problem.New(problem.Invalid, "sync %q is not %s or %s", s, Interval, Always)
		}
	}
	return nil
}

func (c Config) settings() (all []Setting) {
	for _, s := range c.Syncs {
		for _, t := range c.Transports {
			all = append(all, Setting{t, s})
		}
	}
	return all
}
