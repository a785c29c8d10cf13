//go:build !linux

package postgres

import "syscall"

// diesWithUs has no counterpart here: the next start stops the orphan.
func diesWithUs(*syscall.SysProcAttr) {}
