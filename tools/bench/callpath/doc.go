// Package callpath measures what a tool call costs on its way through the bus, beside what the same way costs with
// nothing of ours in it.
//
// Both run in one process, on one NATS server, in turns of a fraction of a second: the machine's mood changes faster
// than two runs of a benchmark, so only what was measured side by side is compared, round by round.
//
//	bare      three appends, two durable consumers between them, a core message to the caller; plain nats.go
//	exec      a call to a machine that is not attached: every check of broker and executor, and no provider
//	pure      a call to an MCP tool that only reads, so that it is not claimed
//	keyed     a call to an MCP tool that may be repeated with its key, so that it is claimed first
//	direct    the call of pure, made by an MCP client straight to the server
//
// A consumer that reads everything, as the ledger does, runs beside bare and whole path alike.
package callpath
