//go:build !breakout

package engine

// breakout gives a script nothing. In the worker of the jail's own test it gives raw system calls.
func (*machine) breakout() error { return nil }
