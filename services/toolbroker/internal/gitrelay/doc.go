// Package gitrelay carries git's smart HTTP between a machine and a git server: what a push may say, and the pieces in
// which bodies go over the bus.
package gitrelay
