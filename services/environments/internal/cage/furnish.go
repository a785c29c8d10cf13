package cage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Namespaces are those that a cage has of its own, as flags of clone. The process that closes the cage is the first of
// its processes: whatever it starts cannot signal or trace it, sees no process of the machine, and ends with it, because
// the kernel ends a namespace with its first process.
const Namespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC

// Rights are what Furnish needs in its namespaces, as capabilities. It gives them up.
var Rights = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}

// TmpDir is what commands have for /tmp, below the volume.
const TmpDir = ".tmp"

// ownTmp says that /tmp is the volume's own. It cannot be where the volume itself is below /tmp.
func (r Rules) ownTmp() bool { return r.Own && !strings.HasPrefix(r.Volume+"/", "/tmp/") }

// Furnish gives namespaces their own /proc, /tmp, /dev/shm and loopback device, and gives up the rights for that.
func Furnish(r Rules) error {
	if r.Own {
		if err := mounts(r); err != nil {
			return err
		}
	}
	if !r.Network {
		raiseLoopback()
	}
	return dropRights()
}

func mounts(r Rules) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	const plain = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("proc", "/proc", "proc", plain|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("own /proc: %w", err)
	}
	if err := unix.Mount("shm", "/dev/shm", "tmpfs", plain, "size=256m,mode=1777"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("own /dev/shm: %w", err)
	}
	for _, dir := range r.Hidden {
		if err := hide(dir, r.kept()); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	if !r.ownTmp() {
		return nil
	}
	if err := unix.Mount(filepath.Join(r.Volume, TmpDir), "/tmp", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("own /tmp: %w", err)
	}
	return nil
}

// raiseLoopback lets commands talk among themselves in a network of their own. Without the right to, they cannot.
func raiseLoopback() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if ifr, err := unix.NewIfreq("lo"); err == nil {
		ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	}
}

// dropRights takes every capability from every thread of this process, for good.
func dropRights() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("ambient rights: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return fmt.Errorf("rights: %w", errno)
	}
	return nil
}
