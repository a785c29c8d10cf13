// The Go runtime would keep two cgroup files open to follow the processor quota, and a jailed process has no files.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command jsworker runs the scripts of one run in a jail. The runtime's pool starts it with a socket as descriptor 3; it
// is of no use by hand. Build it without cgo.
package main

import (
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/execwarden/execwarden/services/runtime/internal/engine"
	"github.com/execwarden/execwarden/services/runtime/internal/engine/jail"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

const (
	socketFD  = 3
	programFD = 4 // this program, which the pool starts by descriptor
)

func main() {
	var bounds jail.Bounds
	flag.Uint64Var(&bounds.Data, "data", 256<<20, "writable memory in bytes")
	flag.Uint64Var(&bounds.CPU, "cpu", 5, "processor time in seconds")
	flag.Parse()

	_ = syscall.Close(programFD) // absent when the pool found the program another way
	// Non-blocking, so that waiting for a reply parks a goroutine and not the only processor with it.
	if err := syscall.SetNonblock(socketFD, true); err != nil {
		fmt.Fprintln(os.Stderr, "jsworker: no socket:", err)
		os.Exit(1)
	}
	socket := os.NewFile(socketFD, "pool")
	hello := wire.Hello{Version: wire.Version, Isolation: jail.Close(bounds)}
	if err := engine.Serve(wire.NewConn(socket), hello); err != nil {
		fmt.Fprintln(os.Stderr, "jsworker:", err)
		os.Exit(1)
	}
}
