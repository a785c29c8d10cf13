package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// openImage copies the worker program into sealed memory and checks its digest there. The bytes that were checked are
// the bytes that run, whoever can write the file, and a worker mapped to nobody can start from a directory that it
// could not enter.
func openImage(path, digest string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the worker program cannot be opened")
	}
	defer file.Close()

	fd, err := unix.MemfdCreate("jsworker", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // a kernel before 6.3, where every memfd can be executed
		fd, err = unix.MemfdCreate("jsworker", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "no executable memory for the worker program")
	}
	image := os.NewFile(uintptr(fd), "jsworker")
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(image, sum), file); err != nil {
		image.Close()
		return nil, problem.Wrap(err, problem.Unavailable, "the worker program cannot be read")
	}
	if got := hex.EncodeToString(sum.Sum(nil)); digest != "" && got != digest {
		image.Close()
		return nil, problem.New(problem.Denied, "the worker program's digest is %s, not %s", got, digest)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(image.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		image.Close()
		return nil, problem.Wrap(err, problem.Unavailable, "the worker program cannot be sealed")
	}
	return image, nil
}
