package checkpoint

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Staging starts the names of directories beside volumes that a restore is written in. One that a crash left is removed by
// Sweep.
const Staging = ".restore-"

// Restore brings the checkpoint in dir back as volume, for uid and gid; zero: this process's own. hash is its manifest's.
// Every file is compared before the volume is replaced, which is at one moment: a crash leaves the one or the other.
// Problems: conflict when anything of it differs, and then the volume is as it was.
func Restore(ctx context.Context, dir, hash, volume string, uid, gid int) (m Manifest, err error) {
	if m, err = read(dir, hash); err != nil {
		return m, err
	}
	tmp := filepath.Join(filepath.Dir(volume), Staging+strings.ToLower(rand.Text()))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return m, diskFault(err)
	}
	defer remove(tmp) // after the exchange this is the volume's former content
	if err := m.extract(ctx, dir, tmp, uid, gid); err != nil {
		return m, err
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, volume, unix.RENAME_EXCHANGE)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, volume, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return m, diskFault(err)
	}
	return m, syncDir(filepath.Dir(volume))
}

// stale is far longer than anything is copied. What is younger may be another life's that is not over.
const stale = 10 * time.Minute

// Sweep removes what copies that a crash ended left.
func Sweep(pattern string) {
	left, _ := filepath.Glob(pattern) // the pattern is right
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > stale {
			remove(dir)
		}
	}
}

// remove removes a directory with everything in it, also directories that their owner may not change: whoever is not root
// has to let themselves in first. What cannot be removed, the next life sweeps.
func remove(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// extract writes the archive's files into a directory, each compared with its entry.
func (m Manifest) extract(ctx context.Context, dir, to string, uid, gid int) error {
	in, err := os.Open(filepath.Join(dir, archiveFile))
	if err != nil {
		return damaged("its archive is not there")
	}
	defer in.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return diskFault(err)
	}
	defer root.Close()
	r := tar.NewReader(&cancellable{ctx, in})
	for _, e := range m.Entries {
		h, err := r.Next()
		if ctx.Err() != nil {
			return problem.Wrap(ctx.Err(), problem.TooLarge, "the checkpoint is too large to be brought back in the time that there is")
		}
		if err != nil || h.Name != e.Path || h.Size != e.Size || !fs.ValidPath(e.Path) {
			return damaged("its archive does not hold " + e.Path)
		}
		if err := e.put(root, r, uid, gid); err != nil {
			return err
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		return damaged("its archive holds more than its manifest says")
	}
	// The times and modes of directories, once nothing is written into them any more.
	for i := len(m.Entries) - 1; i >= 0; i-- {
		if e := m.Entries[i]; e.Kind == directory {
			if err := errors.Join(root.Chmod(e.Path, fs.FileMode(e.Mode)), root.Chtimes(e.Path, e.Time, e.Time)); err != nil {
				return diskFault(err)
			}
		}
	}
	if err := root.Mkdir(Scratch, 0o700); err != nil {
		return diskFault(err)
	}
	if uid != 0 {
		if err := errors.Join(root.Lchown(Scratch, uid, gid), root.Lchown(".", uid, gid)); err != nil {
			return diskFault(err)
		}
	}
	top, err := root.Open(".")
	if err != nil {
		return diskFault(err)
	}
	defer top.Close()
	if err := unix.Syncfs(int(top.Fd())); err != nil {
		return diskFault(err)
	}
	return nil
}

func (e Entry) put(root *os.Root, r io.Reader, uid, gid int) (err error) {
	switch e.Kind {
	case directory:
		err = root.Mkdir(e.Path, 0o700)
	case link:
		err = root.Symlink(e.Link, e.Path)
	case file:
		err = e.putFile(root, r)
	default:
		return damaged("its manifest holds a " + string(e.Kind))
	}
	if err == nil && uid != 0 {
		err = root.Lchown(e.Path, uid, gid)
	}
	if err == nil && e.Kind == file {
		err = errors.Join(root.Chmod(e.Path, fs.FileMode(e.Mode&0o777)), root.Chtimes(e.Path, e.Time, e.Time))
	}
	if err != nil && problem.CodeOf(err) != problem.Conflict {
		return diskFault(err)
	}
	return err
}

func (e Entry) putFile(root *os.Root, r io.Reader) error {
	f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if n, err := io.Copy(io.MultiWriter(f, hash), r); err != nil {
		return err
	} else if n != e.Size || hex.EncodeToString(hash.Sum(nil)) != e.SHA256 {
		return damaged(e.Path + " is not what it was")
	}
	return f.Close()
}
