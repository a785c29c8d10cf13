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
	Tier    string  `json:"tier,omitempty"` // how its worker is isolated: jailed, core or weak
}

// Kind implements schemas.Event.
func (Started) Kind() string { return "script.started" }

// Fetching says that a fetch is about to be sent that may change something: any but a GET or a HEAD. When the script is
// run again and this has no Fetched, the fetch may have had its effect, and is not sent again.
type Fetching struct {
	Call    id.Call `json:"call"`
	Run     id.Run  `json:"run"`
	Seq     int     `json:"seq"`
	Method  string  `json:"method"`
	Request string  `json:"request"` // as in Fetched
}

// Kind implements schemas.Event.
func (Fetching) Kind() string { return "script.fetching" }

// Fetched records one fetch with every hop that it took and what it brought. Its place in the stream is its place among
// the answers of the script: one that is run again is given the same answers in the same order.
type Fetched struct {
	Call    id.Call `json:"call"`
	Run     id.Run  `json:"run"`
	Seq     int     `json:"seq"`
	Method  string  `json:"method"`
	Request string  `json:"request,omitempty"` // SHA-256 of method, URL, headers and body, in hex
	Status  int     `json:"status,omitempty"`
	Bytes   int     `json:"bytes"`
	Code    string  `json:"code,omitempty"` // problem code when refused or failed
	Body    Hops    `json:"body"`
}

// Kind implements schemas.Event.
func (Fetched) Kind() string { return "script.fetched" }

// Hops lists where a fetch went, and what came of it.
type Hops struct {
	Hops   []Hop  `json:"hops"`
	Answer Answer `json:"answer,omitzero"`
}

// Answer is what the script was given: a response, or with the Code of Fetched the message of its failure.
type Answer struct {
	URL     string  `json:"url,omitempty"` // of the last hop
	Header  []Field `json:"header,omitempty"`
	Body    []byte  `json:"body,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Field is one line of a response's header.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Hop is one request of a fetch.
type Hop struct {
	URL     string `json:"url"`
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
}
