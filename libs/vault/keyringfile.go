package vault

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"filippo.io/age"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
)

// Rotation is a way to change which key of a keyring's file seals.
type Rotation string

// The ways. Replace does at once what Stage and Promote do in two steps, between which the file is brought to every
// instance that does not share it.
const (
	Replace Rotation = "replace" // a new key seals from now on
	Stage   Rotation = "stage"   // a new key opens, and does not seal yet
	Promote Rotation = "promote" // the staged key seals from now on
)

// RotateFile changes a keyring's file, whole and durably or not at all, and names the key that is new or promoted.
// Earlier keys stay. Problems: invalid, conflict.
func RotateFile(path string, how Rotation) (name string, err error) {
	err = changeFile(path, func(r ring) (ring, error) {
		switch {
		case how == Promote && r.staged == 0:
			return r, problem.New(problem.Conflict, "%s has no staged key to promote", path)
		case how != Promote && r.staged > 0:
			return r, problem.New(problem.Conflict, "%s has a staged key already; promote that", path)
		case how != Promote && len(r.keys) == maxKeys:
			return r, problem.New(problem.Conflict, "%s has %d keys, which is the most; rewrap and prune", path, maxKeys)
		case how != Promote:
			fresh, err := age.GenerateX25519Identity()
			if err != nil {
				return r, fmt.Errorf("master key: %w", err)
			}
			r.keys = slices.Insert(r.keys, 0, fresh)
		}
		if r.staged = 0; how == Stage {
			r.staged = 1
		}
		name = nameOf(r.keys[0])
		return r, nil
	})
	return name, err
}

// PruneFile drops the keys of a keyring's file that are older than the one that seals, which has to be current, and
// says how many those were. What is still sealed under one of them never opens again. Problems: invalid, conflict.
func PruneFile(path, current string) (dropped int, err error) {
	err = changeFile(path, func(r ring) (ring, error) {
		if name := nameOf(r.current()); name != current {
			return r, problem.New(problem.Conflict, "%s in %s seals, and the services seal under %s; nothing was dropped", name, path, current)
		}
		dropped = len(r.keys) - r.staged - 1
		r.keys = r.keys[:r.staged+1]
		return r, nil
	})
	return dropped, err
}

// changeFile reads a keyring's file, and writes what change makes of it. Only one program does so at a time: of two
// that add a key, the one that writes last would lose the other's, under which something may be sealed by then.
func changeFile(path string, change func(ring) (ring, error)) error {
	real, err := filepath.EvalSymlinks(path) // a link is kept, and what it leads to is changed
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "key file %s cannot be read", path)
	}
	dir, err := os.Open(filepath.Dir(real))
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "key file %s cannot be changed", path)
	}
	defer dir.Close() // which also unlocks it
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return problem.Wrap(err, problem.Conflict, "somebody else is changing %s", path)
	}
	text, err := keyfile.Read(real)
	if err != nil {
		return err
	}
	r, err := parseRing(text)
	if err == nil {
		r, err = change(r)
	}
	if err != nil {
		return err
	}
	// A crash here leaves the file as it was, or as it is to be; running programs read either.
	return keyfile.Write(real, r.text())
}
