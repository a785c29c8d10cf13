// Package engine runs scripts in a worker process: goja, an event loop of its own, and the bridge to the parent.
//
// The worker is jailed and serves one run, so the engine need not survive a script: it goes on to the next one only
// after one that came to its own end, with a VM and a state that are made anew. It has to end a script cleanly where it
// can, say why, and never run the script's code where no limit holds: values cross between JavaScript and Go as strings
// that were made inside a guarded entry, and nothing is exported, printed or compared on the Go side.
//
//	Serve    hello; then for each script run, last word, ready
//	program  source text -> program: fences, forms, TypeScript, regular expressions
//	places   where things are in the script as it was sent
//	machine  the VM and the one way into it
//	loop     replies and timers -> entries, until there is a value or nothing left to wait for
//	watcher  processor time and memory, from beside the VM
//	bridge   what the preludes in js/ ask of Go
package engine
