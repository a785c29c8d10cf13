package boot

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is what a process may allocate between two collections at least, in bytes. A service keeps little and allocates much
// (one MCP message costs the SDK 32 KiB several times over), so by Go's own rule, which doubles what is in use, it would
// collect dozens of times a second.
const heapRoom = 128 << 20

// RoomyHeap makes collections of a small heap rarer, for the rest of the process's life. Whoever set GOGC has decided that
// already; GOMEMLIMIT holds all the same.
func RoomyHeap() {
	if os.Getenv("GOGC") == "" {
		afterCollection()
	}
}

// afterCollection sets the room by what the last collection left, and comes back after the next.
func afterCollection() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(roomPercent(live[0].Value.Uint64()))
	mark := new(*int) // nothing holds it, so the next collection finds it
	runtime.AddCleanup(mark, func(struct{}) { afterCollection() }, struct{}{})
}

// roomPercent is GOGC for a heap of so many live bytes: 100 from heapRoom on, as Go has it.
func roomPercent(live uint64) int {
	const least = 4 << 20 // Go's own smallest heap; in front of the first collection nothing is known to be live
	return int(max(100, heapRoom*100/max(live, least)))
}
