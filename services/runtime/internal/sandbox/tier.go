package sandbox

import (
	"os"
	"slices"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// Tier sums up how a worker is isolated.
type Tier string

const (
	// TierWeak lacks seccomp or a network namespace. It is for development.
	TierWeak Tier = "weak"
	// TierCore has seccomp, no new privileges and a network of its own, and lacks something else.
	TierCore Tier = "core"
	// TierJailed has every layer.
	TierJailed Tier = "jailed"
)

// Report is what a worker says holds, and what it was refused when it tried.
type Report struct {
	wire.Isolation
	// Own are the kinds of namespaces that the worker does not share with this process.
	Own []string `json:"own"`
}

// Tier judges a report.
func (r Report) Tier() Tier {
	core := r.Seccomp && r.NoNewPrivs && r.SocketDenied && r.ExecDenied && slices.Contains(r.Own, "net")
	switch {
	case !core:
		return TierWeak
	case r.Landlock > 0 && r.FilesDenied && r.Rlimits && r.EmptyEnv && len(r.Own) == len(namespaceKinds):
		return TierJailed
	}
	return TierCore
}

var namespaceKinds = []string{"user", "net", "mnt", "pid", "ipc", "uts"}

// report compares a worker's namespaces with ours.
func report(is wire.Isolation) Report {
	r := Report{Isolation: is}
	for _, kind := range namespaceKinds {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if theirs := is.Namespaces[kind]; err == nil && theirs != "" && theirs != ours {
			r.Own = append(r.Own, kind)
		}
	}
	return r
}
