// Package bridge carries the messages of an MCP client that speaks over standard input and output to the endpoint, and back. It
// reads only what it needs to carry them (ids, methods, the protocol's version), and changes none: a message goes on with the bytes
// that it came with.
//
//	bridge.go    the life of it: reads, bounds, ends
//	message.go   what is read of a message
//	lines.go     lines in, with a bound; lines out, whole
//	exchange.go  one message over HTTP, and its answer
//	stream.go    events of the server, and where to go on after a lost connection
//	session.go   the session of protocols before 2026-07-28, begun again when the server has forgotten it
package bridge
