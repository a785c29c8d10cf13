package sandbox

import (
	"encoding/hex"
	"runtime"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Config says how a Pool works.
type Config struct {
	// WorkerPath is the jsworker program. Required.
	WorkerPath string
	// WorkerDigest is the program's SHA-256 in hex. Defaults to not checking.
	WorkerDigest string
	// Ready is how many workers wait for a script, besides one for a tenant that has no other script. Defaults to the
	// number of processors, at least 2.
	Ready int
	// Running is how many scripts run at once. Defaults to 4 per processor.
	Running int
	// PerTenant is how many scripts of one tenant run at once. Defaults to half of Running, at least 1.
	PerTenant int
	// Queue is how many scripts of one tenant may wait for a place. Defaults to 32. More are refused as busy.
	Queue int
	// Patience is how long a script waits for a place and a worker before it is refused as busy. Defaults to 10 s.
	Patience time.Duration
	// Parked is how many workers are kept for later scripts of their runs, on places that no running script needs.
	// Defaults to Running.
	Parked int
	// Idle is how long one is kept without a script. Defaults to 30 s; below zero, none is kept.
	Idle time.Duration
	// ParkedMemory is the most that a worker may hold, in bytes, to be kept. Defaults to 32 MiB.
	ParkedMemory int64
	// Limits are the most that a script may have, and what it gets if it asks for nothing.
	Limits Limits
	// AllowWeak accepts workers that are not isolated enough for other people's scripts. Defaults to false.
	AllowWeak bool
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() Config {
	fill := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	fill(&c.Ready, max(2, runtime.GOMAXPROCS(0)))
	fill(&c.Running, 4*runtime.GOMAXPROCS(0))
	fill(&c.PerTenant, max(1, c.Running/2))
	fill(&c.Queue, 32)
	fill(&c.Parked, c.Running)
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Idle == 0 {
		c.Idle = 30 * time.Second
	}
	if c.ParkedMemory == 0 {
		c.ParkedMemory = 32 << 20
	}
	c.Limits = c.Limits.WithDefaults()
	return c
}

func (c Config) validate() error {
	switch {
	case c.WorkerPath == "":
		return problem.New(problem.Invalid, "WorkerPath is required")
	case c.Ready < 0 || c.Running < 0 || c.PerTenant < 0 || c.Queue < 0 || c.Patience < 0 || c.Parked < 0 || c.ParkedMemory < 0:
		return problem.New(problem.Invalid, "Ready, Running, PerTenant, Queue, Patience, Parked and ParkedMemory are not negative")
	}
	if sum, err := hex.DecodeString(c.WorkerDigest); err != nil || len(sum) != 0 && len(sum) != 32 {
		return problem.New(problem.Invalid, "WorkerDigest is a SHA-256 in hex")
	}
	if err := c.Limits.Validate(); err != nil {
		return problem.New(problem.Invalid, "%v", err)
	}
	return nil
}
