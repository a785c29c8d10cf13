// Package script holds the events of one execution of JavaScript in the lightweight runtime.
package script

import (
	"encoding/json"

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

// Fetching says that a request that may change something, any but a GET or HEAD, is about to be made; or that a GET or
// HEAD was, whose script ended before the answer. Without a script.fetched of the same place nobody knows whether it was.
type Fetching struct {
	Call   id.Call `json:"call"`
	Run    id.Run  `json:"run"`
	Seq    int     `json:"seq"` // place among the requests of the script
	Digest string  `json:"digest"`
	Method string  `json:"method"`
	Body   Asked   `json:"body"`
}

// Kind implements schemas.Event.
func (Fetching) Kind() string { return "script.fetching" }

// Asked is where a fetch is to go.
type Asked struct {
	URL string `json:"url"`
}

// Fetched records one fetch with every hop that it took, also one that was refused, and what the script was given: when
// it is run again over the record, it is given the same.
type Fetched struct {
	Call   id.Call `json:"call"`
	Run    id.Run  `json:"run"`
	Seq    int     `json:"seq"`
	Digest string  `json:"digest,omitempty"` // SHA-256 of method, URL, headers and body
	Method string  `json:"method"`
	Status int     `json:"status,omitempty"`
	Bytes  int     `json:"bytes"`
	Code   string  `json:"code,omitempty"` // problem code when refused or failed
	Body   Hops    `json:"body"`
}

// Kind implements schemas.Event.
func (Fetched) Kind() string { return "script.fetched" }

// Hops lists where a fetch went, and what it brought.
type Hops struct {
	Hops    []Hop   `json:"hops"`
	Message string  `json:"message,omitempty"` // why it was refused or failed
	Answer  *Answer `json:"answer,omitempty"`
}

// Hop is one request of a fetch.
type Hop struct {
	URL     string `json:"url"`
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
}

// Answer is a response as the script was given it. A body of more than a few KiB is in the blob store, so that the
// record of where a fetch went stays short.
type Answer struct {
	URL    string   `json:"url"`
	Header []Header `json:"header,omitempty"`
	Body   []byte   `json:"body,omitempty"` // decompressed
	Blob   string   `json:"blob,omitempty"` // its name there, in place of Body
}

// Header is one line of a response's header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Searched records what a script was told of the tools that it may call: by words, or of one by its name.
type Searched struct {
	Call id.Call `json:"call"`
	Run  id.Run  `json:"run"`
	Seq  int     `json:"seq"`
	Code string  `json:"code,omitempty"` // problem code when there was no answer
	Body Told    `json:"body"`
}

// Kind implements schemas.Event.
func (Searched) Kind() string { return "script.searched" }

// Told is a question about tools and its answer.
type Told struct {
	Query   string          `json:"query,omitempty"`
	Tool    string          `json:"tool,omitempty"`
	Message string          `json:"message,omitempty"` // in place of an answer
	Answer  json.RawMessage `json:"answer,omitempty"`
}
