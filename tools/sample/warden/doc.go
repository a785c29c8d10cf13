// Package warden runs execwarden up in a process of its own, and the execwarden command against it: all that a program has
// that uses ExecWarden as a new user does.
package warden
