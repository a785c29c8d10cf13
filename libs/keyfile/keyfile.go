// Package keyfile keeps Ed25519 private keys in files that only their owner may read.
package keyfile

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/execwarden/execwarden/libs/problem"
)

// Load reads a private key, and makes one when there is no such file.
func Load(path string) (ed25519.PrivateKey, error) {
	text, err := Read(path)
	if !errors.Is(err, os.ErrNotExist) {
		if err != nil {
			return nil, err
		}
		return Parse(text, path)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return key, Write(path, base64.StdEncoding.EncodeToString(key.Seed()))
}

// Read reads a secret's file, which nobody else may be able to read. Its error wraps os.ErrNotExist when there is
// none.
func Read(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "key file %s cannot be read", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", problem.New(problem.Invalid, "key file %s can be read by others; chmod 600 it", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "key file %s cannot be read", path)
	}
	return strings.TrimSpace(string(text)), nil
}

// Write keeps a secret in a file, whole and durable or not at all. A file that it replaces keeps its owner.
func Write(path, text string) error {
	tmp := path + ".new"
	// One that a crash left, or that somebody put there, is not written into: it may be open to others.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return problem.Wrap(err, problem.Invalid, "key file %s cannot be made", path)
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "key file %s cannot be made", path)
	}
	_, err = io.WriteString(f, text+"\n")
	err = errors.Join(err, keepOwner(f, path), f.Sync(), f.Close())
	if err == nil {
		// A crash before this leaves a .new file that the next start removes; after it, the whole key.
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path)) // else a loss of power could forget a key that secrets are sealed under by now
	}
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "key file %s cannot be made", path)
	}
	return nil
}

// keepOwner gives f to whom the file at path belongs: root may change the key of a service that runs as another user.
func keepOwner(f *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Parse reads a private key from its text: the seed in base64.
func Parse(text, where string) (ed25519.PrivateKey, error) {
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, problem.New(problem.Invalid, "%s does not hold an Ed25519 seed in base64", where)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
