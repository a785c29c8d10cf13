package model

import "time"

// Limits bound what a provider may send. They protect memory, not the budget; an answer over a limit is a failure.
type Limits struct {
	StreamBytes int64         // the whole stream with its framing. Defaults to 64 MiB
	LineBytes   int           // one line of the stream. Defaults to 4 MiB
	TextBytes   int           // the answer's text, and as much again for its raw blocks. Defaults to 4 MiB
	ArgsBytes   int           // the arguments of all tool calls. Defaults to 1 MiB
	ToolCalls   int           // tool calls in one answer. Defaults to 64
	Silence     time.Duration // the longest time without a byte. Defaults to 5 minutes: a CPU reads a long prompt slowly
}

// WithDefaults fills in what is zero.
func (l Limits) WithDefaults() Limits {
	l.StreamBytes = orDefault(l.StreamBytes, 64<<20)
	l.LineBytes = orDefault(l.LineBytes, 4<<20)
	l.TextBytes = orDefault(l.TextBytes, 4<<20)
	l.ArgsBytes = orDefault(l.ArgsBytes, 1<<20)
	l.ToolCalls = orDefault(l.ToolCalls, 64)
	l.Silence = orDefault(l.Silence, 5*time.Minute)
	return l
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}
