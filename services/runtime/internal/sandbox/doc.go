// Package sandbox runs untrusted scripts in jailed worker processes, from the trusted side.
//
// Each run gets a process of its own that was made before its script was known. It runs one script at a time, each in a
// new VM, waits for the run's next script in between, and is killed when the run ends, when it idles, and after any
// script that did not come to its own end. The process has one socket and nothing else: no files, no network, no
// environment. Tools and fetches are asked for over the socket and answered by the Host, here.
//
//	            spawn              take              run                 result
//	Config ─► nursery (Ready) ─► Pool.Run ─► session (the clock) ─┬─► exit, reaped
//	                                ▲                             │ sound
//	                                └── lot (its run's next) ◄────┘
//
// The worker's word is not trusted once it has a script. The session bounds what it reads, refuses what may not come
// now, and is the only clock: a worker that says nothing is ended by the session, one that computes by the kernel.
package sandbox
