package vault

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
)

// maxKeys is how many master keys a keyring has at most.
const maxKeys = 64

// stagedWord marks a key that does not seal yet.
const stagedWord = "staged"

// agePrefix starts everything that age seals.
const agePrefix = "age-encryption.org/"

// Keyring is a master of age X25519 identities, the newest first. The first that is not staged seals; all open. A
// staged key is one that other instances may not know yet.
//
// A keyring of a file looks at the file before each use and reads it again when it has changed. So a program needs
// neither a signal nor a restart, and never seals under a key that its file does not name any more.
type Keyring struct {
	path string // empty: the keys never change

	mu    sync.Mutex
	seen  os.FileInfo // the file as it was read last
	keys  ring
	fault error // why what is in the file now is no keyring; keys are those before
}

// ring is what a keyring holds.
type ring struct {
	keys   []*age.X25519Identity // the newest first
	staged int                   // how many of the first are staged
}

func (r ring) current() *age.X25519Identity { return r.keys[r.staged] }

// LoadMaster reads a keyring from a file that only its owner may read, and makes the file when there is none.
func LoadMaster(path string) (*Keyring, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, fmt.Errorf("master key: %w", err)
		}
		if err := keyfile.Write(path, ring{keys: []*age.X25519Identity{identity}}.text()); err != nil {
			return nil, err
		}
	}
	return OpenMaster(path)
}

// OpenMaster reads a keyring from a file that is there: a service must not make a master key that no other has.
func OpenMaster(path string) (*Keyring, error) {
	k := &Keyring{path: path}
	_, err := k.now()
	return k, err
}

// ParseMaster reads a keyring from text: age identities (AGE-SECRET-KEY-1...) apart by space or on lines of their own,
// with comments after a #, and the word staged before those that do not seal yet.
func ParseMaster(text string) (*Keyring, error) {
	r, err := parseRing(text)
	return &Keyring{keys: r}, err
}

func parseRing(text string) (r ring, err error) {
	// The identities themselves are never part of a problem, nor is its cause, which could show them.
	invalid := func(format string, args ...any) (ring, error) {
		return ring{}, problem.New(problem.Invalid, "the master key is no list of age identities (AGE-SECRET-KEY-1...): "+format, args...)
	}
	staged := false
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		for _, word := range strings.Fields(line) {
			if word == stagedWord && !staged {
				staged = true
				continue
			}
			key, err := age.ParseX25519Identity(word)
			switch {
			case err != nil:
				return invalid("word %d is none", len(r.keys)+1)
			case slices.ContainsFunc(r.keys, func(k *age.X25519Identity) bool { return k.String() == key.String() }):
				return invalid("number %d is there twice", len(r.keys)+1)
			case staged && r.staged != len(r.keys):
				return invalid("number %d is staged and follows one that is not; the newest come first", len(r.keys)+1)
			case len(r.keys) == maxKeys:
				return invalid("there are more than %d", maxKeys)
			case staged:
				r.staged++
			}
			r.keys, staged = append(r.keys, key), false
		}
	}
	switch {
	case lines.Err() != nil:
		return invalid("a line is too long")
	case staged || r.staged == len(r.keys):
		return invalid("there is none that seals")
	}
	return r, nil
}

// text is the ring as parseRing reads it.
func (r ring) text() string {
	var b strings.Builder
	b.WriteString("# Master keys of ExecWarden, the newest first. The first that is not staged seals, all open.")
	for i, key := range r.keys {
		b.WriteString("\n# " + nameOf(key) + "\n")
		if i < r.staged {
			b.WriteString(stagedWord + " ")
		}
		b.WriteString(key.String())
	}
	return b.String()
}

// nameOf tells identities apart, by their public half.
func nameOf(key *age.X25519Identity) string {
	sum := sha256.Sum256([]byte(key.Recipient().String()))
	return "age:" + hex.EncodeToString(sum[:6])
}

// now gives the keys as they are now. With an error, they are those that were known last: they open what they opened,
// and seal nothing, since it is not known which of them should.
func (k *Keyring) now() (ring, error) {
	if k.path == "" {
		return k.keys, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.path)
	if err != nil {
		return k.keys, problem.Wrap(err, problem.Invalid, "key file %s cannot be read", k.path)
	}
	if k.seen != nil && os.SameFile(k.seen, info) && k.seen.ModTime().Equal(info.ModTime()) && k.seen.Size() == info.Size() && k.seen.Mode() == info.Mode() {
		return k.keys, k.fault
	}
	k.seen = info // before reading: what is written meanwhile is seen as a change the next time
	text, err := keyfile.Read(k.path)
	if err != nil {
		k.seen = nil // it may be readable the next time, with nothing about it changed
		return k.keys, err
	}
	fresh, err := parseRing(text)
	if k.fault = err; err == nil {
		k.keys = fresh
	}
	return k.keys, k.fault
}

// Wrap implements Master.
func (k *Keyring) Wrap(_ context.Context, key []byte) ([]byte, error) {
	r, err := k.now()
	if err != nil {
		return nil, err
	}
	return seal(r.current().Recipient(), string(key))
}

// Unwrap implements Master. What a staged key sealed is current: the instance that sealed it is further in the
// roll-out than this one, and must not be undone.
func (k *Keyring) Unwrap(_ context.Context, wrapped []byte) ([]byte, bool, error) {
	r, fault := k.now()
	if !bytes.HasPrefix(wrapped, []byte(agePrefix)) {
		return nil, false, unknownKey() // of a master of another kind
	}
	for i, key := range r.keys {
		text, err := open(wrapped, key)
		if !errors.Is(err, errOther) {
			return []byte(text), i <= r.staged && err == nil, err
		}
	}
	if fault != nil {
		return nil, false, fault
	}
	return nil, false, unknownKey()
}

// Current implements Master.
func (k *Keyring) Current(context.Context) (string, error) {
	r, err := k.now()
	if err != nil {
		return "", err
	}
	return nameOf(r.current()), nil
}
