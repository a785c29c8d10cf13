package checkpoint

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Scratch is the directory of a volume that checkpoints leave out: commands' temporary files.
const Scratch = ".tmp"

// Make keeps a volume, in which nothing may change meanwhile, as dir. It is there whole and durable or not at all. One that
// is there already is replaced. hash is of its manifest.
func Make(ctx context.Context, volume, dir string, generation int) (m Manifest, hash string, err error) {
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return m, "", diskFault(err)
	}
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return m, "", diskFault(err)
	}
	defer os.RemoveAll(tmp) // once it has its name, it is not there
	m.Generation = generation
	if err := m.archive(ctx, volume, filepath.Join(tmp, archiveFile)); err != nil {
		return m, "", err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return m, "", err
	}
	if len(raw) > maxManifest {
		return m, "", problem.New(problem.TooLarge, "the manifest is over %d bytes", maxManifest)
	}
	if err := writeSynced(filepath.Join(tmp, manifestFile), raw); err != nil {
		return m, "", diskFault(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return m, "", diskFault(err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return m, "", diskFault(err)
	}
	return m, hashOf(raw), syncDir(filepath.Dir(dir))
}

func diskFault(err error) error {
	return problem.Wrap(err, problem.Unavailable, "the machine's disk does not take it: %v", err)
}

// archive writes the volume's files, and notes each.
func (m *Manifest) archive(ctx context.Context, volume, path string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return problem.Wrap(err, problem.NotFound, "the machine has no such volume")
	}
	defer root.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return diskFault(err)
	}
	defer out.Close()
	w := tar.NewWriter(out)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return problem.Wrap(err, problem.Unavailable, "%.200s cannot be read: %v", path, err)
		case ctx.Err() != nil:
			return problem.Wrap(ctx.Err(), problem.TooLarge, "the volume is too large to be copied in the time that there is")
		case path == ".":
			return nil
		case path == Scratch:
			return fs.SkipDir
		case len(m.Entries) == maxEntries:
			return problem.New(problem.TooLarge, "the volume has over %d files", maxEntries)
		}
		return m.add(ctx, root, w, path, d)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return diskFault(err)
	}
	if err := out.Sync(); err != nil {
		return diskFault(err)
	}
	return nil
}

func (m *Manifest) add(ctx context.Context, root *os.Root, w *tar.Writer, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return changed(path)
	}
	e := Entry{Path: path, Mode: uint32(info.Mode().Perm()), Time: info.ModTime().UTC()}
	switch {
	case info.IsDir():
		e.Kind = directory
	case info.Mode()&fs.ModeSymlink != 0:
		e.Kind = link
		if e.Link, err = root.Readlink(path); err != nil {
			return changed(path)
		}
	case info.Mode().IsRegular():
		e.Kind, e.Size = file, info.Size()
	default:
		m.Skipped++
		return nil
	}
	if err := w.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: path, Size: e.Size}); err != nil {
		return diskFault(err)
	}
	if e.Kind == file {
		if e.SHA256, err = copyFile(ctx, root, w, path, info); err != nil {
			return err
		}
	}
	m.Entries = append(m.Entries, e)
	return nil
}

// copyFile copies what was looked at, and nothing that has taken its place.
func copyFile(ctx context.Context, root *os.Root, w io.Writer, path string, was fs.FileInfo) (sum string, err error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", changed(path)
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(was, now) || now.Size() != was.Size() {
		return "", changed(path)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), &cancellable{ctx, f})
	switch {
	case ctx.Err() != nil:
		return "", problem.Wrap(ctx.Err(), problem.TooLarge, "the volume is too large to be copied in the time that there is")
	case err != nil && n < was.Size():
		return "", diskFault(err)
	case err != nil || n != was.Size():
		return "", changed(path) // it grew, or was cut
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func changed(path string) error {
	return problem.New(problem.Conflict, "%.200s changed while it was copied", path)
}

type cancellable struct {
	ctx context.Context
	io.Reader
}

func (c *cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}

func writeSynced(path string, raw []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return diskFault(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return diskFault(err)
	}
	return nil
}
