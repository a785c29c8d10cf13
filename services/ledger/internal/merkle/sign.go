package merkle

import (
	"crypto/ed25519"
	"errors"

	"golang.org/x/mod/sumdb/note"

	"github.com/execwarden/execwarden/libs/problem"
)

// The three ways in which a note can fail to vouch for a checkpoint. They are kept apart because they say different
// things: a bad signature is a forgery, an unknown key is a question.
var (
	// ErrMalformed: the bytes are no signed checkpoint.
	ErrMalformed = errors.New("not a signed checkpoint")
	// ErrForged: a signature under a known key does not match, or the checkpoint is another tree's.
	ErrForged = errors.New("signature does not match")
	// ErrUnknownKey: there is no signature by a key that the verifier knows.
	ErrUnknownKey = errors.New("no signature by a known key")
)

// signer is a deployment's key under the name of one tree. A note's key name has to be the checkpoint's origin, and
// a key for each tree would be too many: so the one key has as many names as there are trees.
type signer struct {
	note.Verifier // its name and key hash
	key           ed25519.PrivateKey
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// VerifierKey is the public key under the name of one tree, in the spelling that note tools read.
func VerifierKey(origin string, key ed25519.PublicKey) (string, error) {
	text, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "the key cannot be named %q", origin)
	}
	return text, nil
}

func newVerifier(origin string, key ed25519.PublicKey) (note.Verifier, error) {
	text, err := VerifierKey(origin, key)
	if err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the key cannot be named %q", origin)
	}
	return v, nil
}

// Sign returns the checkpoint as a note, signed by every key: while a key is replaced, by the old and the new one.
func Sign(c Checkpoint, keys ...ed25519.PrivateKey) ([]byte, error) {
	signers := make([]note.Signer, 0, len(keys))
	for _, key := range keys {
		public, ok := key.Public().(ed25519.PublicKey)
		if !ok || len(key) != ed25519.PrivateKeySize {
			return nil, problem.New(problem.Invalid, "not an Ed25519 key")
		}
		v, err := newVerifier(c.Origin, public)
		if err != nil {
			return nil, err
		}
		signers = append(signers, signer{v, key})
	}
	if len(signers) == 0 {
		return nil, problem.New(problem.Invalid, "a checkpoint needs at least one key")
	}
	signed, err := note.Sign(&note.Note{Text: c.Text()}, signers...)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the checkpoint cannot be signed")
	}
	return signed, nil
}

// Open returns the checkpoint of the tree named origin that a note vouches for: at least one signature is by a
// known key, and none by a known key is wrong. Its errors wrap ErrMalformed, ErrForged or ErrUnknownKey.
func Open(origin string, signed []byte, keys ...ed25519.PublicKey) (Checkpoint, error) {
	verifiers := make([]note.Verifier, 0, len(keys))
	for _, key := range keys {
		v, err := newVerifier(origin, key)
		if err != nil {
			return Checkpoint{}, err
		}
		verifiers = append(verifiers, v)
	}
	if got := originOf(signed); got != origin {
		return Checkpoint{}, problem.Wrap(ErrForged, problem.Denied, "the checkpoint is of %q, not of %q", got, origin)
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return Checkpoint{}, problem.Wrap(ErrUnknownKey, problem.Denied, "the checkpoint of %s has no signature by a known key", origin)
	case errors.As(err, &invalid):
		return Checkpoint{}, problem.Wrap(ErrForged, problem.Denied, "the checkpoint of %s has a wrong signature", origin)
	case err != nil:
		return Checkpoint{}, problem.Wrap(errors.Join(ErrMalformed, err), problem.Invalid, "the checkpoint of %s is malformed", origin)
	}
	c, err := ParseCheckpoint(opened.Text)
	if err != nil {
		return Checkpoint{}, problem.Wrap(errors.Join(ErrMalformed, err), problem.Invalid, "the checkpoint of %s is malformed", origin)
	}
	return c, nil
}
