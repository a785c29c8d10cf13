// Package postgres gives a service its Postgres: a private cluster that installs, starts, heals and stops itself,
// or the one that the operator names; a bounded pool; and migrations.
//
// # The private cluster
//
// Start keeps everything in one directory:
//
//	DataDir/lock      held (flock) by the one process that owns the cluster; the kernel drops it when that one dies
//	DataDir/data      the cluster. It appears by rename, so a crash in the middle of initdb leaves nothing half-made
//	DataDir/data.new  initdb at work; removed and begun again if found
//	DataDir/run       the Unix socket, unless that path would be too long for one
//	DataDir/fetched   binaries, only where the system has none
//
// It listens on a Unix socket only, in a directory closed to others, and lets in two operating-system users: ours,
// and the unprivileged one that the server runs as when we are root (Postgres refuses to run as root).
//
// # Deaths
//
//	we stop            Stop asks for a fast shutdown and waits
//	we are killed      Linux sends the server SIGINT, which is a fast shutdown; elsewhere it stays as an orphan, and
//	                   the next Start, once it holds the lock, stops it before it starts its own
//	the server dies    it is started again, without limit, on the same socket; pools reconnect by themselves
//	the power fails    fsync, full_page_writes and synchronous_commit are on: what was committed is there
package postgres
