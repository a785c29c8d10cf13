// Package jail closes a worker process around itself, once, before it reads a byte that it did not choose.
//
// The namespaces were made by the parent at the fork. Here the process takes its rlimits, gives up new privileges,
// then every file (Landlock) and then every system call that a Go program without input or output does not need
// (seccomp). Each layer alone would be enough against what we know; none is trusted to be.
//
// It is written for a program built without cgo: with cgo, Landlock has to reach every thread through libpsx, which
// hangs inside a PID namespace, and new threads begin with clone3, which the filter refuses.
package jail
