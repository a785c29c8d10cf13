package postgres

import "syscall"

// diesWithUs makes the kernel send the server a SIGINT, which is a fast shutdown, when we die.
func diesWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
