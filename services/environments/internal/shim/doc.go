// Package shim keeps the commands of one attachment. It is a process of its own, which outlives the connector that began
// it: a connector that is restarted, or upgraded, finds its commands where they were.
//
// The shim itself writes receipts and output, and holds nothing back; beside it runs its launcher, which closed the cage
// around itself and starts the commands in it. So no command can reach what is written of it.
//
//	connector --HTTP over a socket--> shim (receipts, spools) --pipe ends--> launcher (caged) --fork--> commands
//	connector <--streams--> shim <--sockets that the launcher passes--> ports of commands, and commands that connect
package shim
