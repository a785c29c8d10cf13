package cage

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kept are what stays where it is in a directory that is hidden: what the cage shows, and what programs find others by.
func (r Rules) kept() []string {
	all := []string{r.Volume, "/run/current-system"} // the programs of NixOS
	for _, root := range r.Roots {
		all = append(all, root.Path)
	}
	if resolver, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
		all = append(all, resolver)
	}
	return all
}

// hide puts an empty directory in the place of one. Landlock says who may open a file, and before its ABI 9 not who may
// connect to a socket: what looks after commands, and the machine's own services, listen on some.
func hide(dir string, keep []string) error {
	type entry struct {
		path, fd string
		dir      bool
	}
	var kept []entry
	for _, path := range keep {
		if !strings.HasPrefix(path, dir+"/") {
			continue
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		kept = append(kept, entry{path, "/proc/self/fd/" + strconv.Itoa(fd), st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("hidden", dir, "tmpfs", plain, "size=64k,mode=755"); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil // this machine has none
		}
		return err
	}
	for _, k := range kept {
		at := k.path
		if !k.dir {
			at = filepath.Dir(at)
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if !k.dir {
			if err := os.WriteFile(k.path, nil, 0o444); err != nil {
				return err
			}
		}
		if err := unix.Mount(k.fd, k.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|plain, "")
}
