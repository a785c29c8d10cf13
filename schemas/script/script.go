// Package script holds the events of one execution of JavaScript in the lightweight runtime.
package script

import (
	"github.com/execwarden/execwarden/schemas/id"
)

// Started says that a worker took the script. Seed and Now are what the script's random source and clock start
// from, so that it can be run again over the same record.
type Started struct {
	Call    id.Call `json:"call"`
	Run     id.Run  `json:"run"`
	Attempt int     `json:"attempt"`
	Seed    uint64  `json:"seed"`
	NowMS   int64   `json:"now_ms"`
}

// Kind implements schemas.Event.
func (Started) Kind() string { return "script.started" }

// Fetched records one fetch with every hop that it took.
type Fetched struct {
	Call   id.Call `json:"call"`
	Run    id.Run  `json:"run"`
	Seq    int     `json:"seq"`
	Method string  `json:"method"`
	Status int     `json:"status,omitempty"`
	Bytes  int     `json:"bytes"`
	Code   string  `json:"code,omitempty"` // problem code when refused or failed
	Body   Hops    `json:"body"`
}

// Kind implements schemas.Event.
func (Fetched) Kind() string { return "script.fetched" }

// Hops lists where a fetch went.
type Hops struct {
	Hops []Hop `json:"hops"`
}

// Hop is one request of a fetch.
type Hop struct {
	URL     string `json:"url"`
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
}
