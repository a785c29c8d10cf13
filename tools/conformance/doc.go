// Package conformance holds ExecWarden against what is not ours: the official conformance suite in both eras of the protocol,
// as a client of the MCP endpoint, as the server of connections, and as a client of the authorization server; the Inspector; and
// sessions and logins of the official TypeScript clients. Everything goes through one house with grants and the durable record on.
// At the end the ledger has to hold each call that was made, once, and to prove itself.
//
//	npm/         what is installed with npm, pinned
//	clients/     the sessions, in JavaScript
//	suite.go     a leg of the suite, and what it found
//	tasks.go     the leg of the tasks extension, with a server for it in jobs.go
//	shim.go      adds the token, which the suite cannot send, and writes down what was asked
//	client.go    the client's leg: the programs that the suite starts, and how each scenario has to end
//	trial.go     one scenario: a connection to the suite, logins, and an agent that uses it
//	person.go    a member at a browser, who logs in, consents and connects
//	record.go    what was asked beside what the ledger has
package conformance
