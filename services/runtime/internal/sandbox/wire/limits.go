package wire

import (
	"fmt"
	"time"
)

// Limits bound one script.
type Limits struct {
	// Source is the script's size in bytes. Defaults to 64 KiB.
	Source int `json:"source"`
	// CPU is the processor time of the worker. Defaults to 2 s. The kernel ends the process 3 s after it.
	CPU time.Duration `json:"cpu"`
	// Wall is the time that passes while no tool call or fetch is open. Defaults to 60 s.
	Wall time.Duration `json:"wall"`
	// Total is the time from start to result, whatever the script waits for. Defaults to 10 minutes.
	Total time.Duration `json:"total"`
	// Drain is how long calls that the script never awaited may go on once it has its value. Defaults to 5 s.
	Drain time.Duration `json:"drain"`
	// Heap is the script's memory in bytes. Defaults to 128 MiB.
	Heap int64 `json:"heap"`
	// Stack is the depth of JavaScript calls. Defaults to 512.
	Stack int `json:"stack"`
	// Calls is the number of tool calls. Defaults to 100.
	Calls int `json:"calls"`
	// Concurrent is how many calls and fetches the host sees at once; more wait their turn. Defaults to 16.
	Concurrent int `json:"concurrent"`
	// Args is the size of one call's arguments. Defaults to 256 KiB.
	Args int `json:"args"`
	// Result is the size of one tool's result, and of the script's value. Defaults to 1 MiB.
	Result int `json:"result"`
	// Fetches is the number of fetches. Defaults to 20.
	Fetches int `json:"fetches"`
	// Request is the size of one fetch's body. Defaults to 1 MiB.
	Request int `json:"request"`
	// Response is the size of one response's body, decoded. Defaults to 5 MiB.
	Response int `json:"response"`
	// Artifact is the size of one artifact. Defaults to 1 MiB.
	Artifact int `json:"artifact"`
	// Keeps is the number of operations on artifacts. Defaults to 100.
	Keeps int `json:"keeps"`
	// Searches is the number of searches and descriptions of tools. Defaults to 20.
	Searches int `json:"searches"`
	// Logs is the size of all console lines together. Defaults to 64 KiB.
	Logs int `json:"logs"`
	// Timers is the number of timers that run at once. Defaults to 100.
	Timers int `json:"timers"`
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	return l.within(Limits{
		Source: 64 << 10, CPU: 2 * time.Second, Wall: time.Minute, Total: 10 * time.Minute, Drain: 5 * time.Second,
		Heap: 128 << 20, Stack: 512, Calls: 100, Concurrent: 16, Args: 256 << 10, Result: 1 << 20,
		Fetches: 20, Request: 1 << 20, Response: 5 << 20, Artifact: 1 << 20, Keeps: 100, Searches: 20, Logs: 64 << 10, Timers: 100,
	}, false)
}

// AtMost gives l with zero fields taken from most, and nothing above it.
func (l Limits) AtMost(most Limits) Limits { return l.within(most, true) }

// within takes zero fields from other, and when capped the smaller of the two everywhere.
func (l Limits) within(other Limits, capped bool) Limits {
	return Limits{
		Source:     pick(l.Source, other.Source, capped),
		CPU:        pick(l.CPU, other.CPU, capped),
		Wall:       pick(l.Wall, other.Wall, capped),
		Total:      pick(l.Total, other.Total, capped),
		Drain:      pick(l.Drain, other.Drain, capped),
		Heap:       pick(l.Heap, other.Heap, capped),
		Stack:      pick(l.Stack, other.Stack, capped),
		Calls:      pick(l.Calls, other.Calls, capped),
		Concurrent: pick(l.Concurrent, other.Concurrent, capped),
		Args:       pick(l.Args, other.Args, capped),
		Result:     pick(l.Result, other.Result, capped),
		Fetches:    pick(l.Fetches, other.Fetches, capped),
		Request:    pick(l.Request, other.Request, capped),
		Response:   pick(l.Response, other.Response, capped),
		Artifact:   pick(l.Artifact, other.Artifact, capped),
		Keeps:      pick(l.Keeps, other.Keeps, capped),
		Searches:   pick(l.Searches, other.Searches, capped),
		Logs:       pick(l.Logs, other.Logs, capped),
		Timers:     pick(l.Timers, other.Timers, capped),
	}
}

func pick[N int | int64 | time.Duration](own, other N, capped bool) N {
	if own == 0 || capped && own > other {
		return other
	}
	return own
}

// Requests is the highest number that a request may have.
func (l Limits) Requests() int { return l.Calls + l.Fetches + l.Searches + l.Keeps }

// Validate refuses limits that no worker can hold. It expects defaults to be filled in.
func (l Limits) Validate() error {
	for name, n := range map[string]int64{
		"source": int64(l.Source), "cpu": int64(l.CPU), "wall": int64(l.Wall), "total": int64(l.Total),
		"drain": int64(l.Drain), "heap": l.Heap, "stack": int64(l.Stack), "calls": int64(l.Calls),
		"concurrent": int64(l.Concurrent), "args": int64(l.Args), "result": int64(l.Result),
		"fetches": int64(l.Fetches), "request": int64(l.Request), "response": int64(l.Response),
		"artifact": int64(l.Artifact), "keeps": int64(l.Keeps), "searches": int64(l.Searches), "logs": int64(l.Logs), "timers": int64(l.Timers),
	} {
		if n < 0 {
			return fmt.Errorf("limit %s is negative", name)
		}
	}
	if l.Heap < 16<<20 {
		return fmt.Errorf("limit heap is %d bytes; a worker needs 16 MiB", l.Heap)
	}
	return nil
}
