// Package conformance holds the MCP endpoint against what is not ours: the official conformance suite in both eras of the
// protocol, the Inspector, and sessions of the official TypeScript clients. Everything goes through ExecWarden with grants and the
// durable record on, to the reference server of the official Go SDK. At the end the ledger has to hold each call that a client
// made, once, and to prove itself.
//
//	npm/         what is installed with npm, pinned
//	clients/     the sessions, in JavaScript
//	suite.go     a leg of the suite, and what it found
//	tasks.go     the leg of the tasks extension, with a server for it in jobs.go
//	shim.go      adds the token, which the suite cannot send, and writes down what was asked
//	record.go    what was asked beside what the ledger has
package conformance
