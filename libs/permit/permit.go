// Package permit signs and verifies the broker's admission of one call. A permit is good for one executor, one call,
// one set of arguments, until it expires, and is claimed before it is used, so once.
package permit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

// MaxLife is the longest that a permit may live.
const MaxLife = 15 * time.Minute

// Purpose is what a key has to be published for to sign permits.
const Purpose = "permit"

// maxSkew is how far clocks may differ.
const maxSkew = 30 * time.Second

// Claims is what a permit says.
type Claims struct {
	Audience   call.Route `json:"aud"`
	Tenant     id.Tenant  `json:"tenant"`
	Run        id.Run     `json:"run"`
	Call       id.Call    `json:"call"`
	Tool       string     `json:"tool"`
	ArgsDigest string     `json:"args_digest"`
	Grant      id.Grant   `json:"grant"`
	Requested  uint64     `json:"requested_seq"`
	Control    uint64     `json:"control_seq"`
	// Attachment and Epoch bind a permit for a machine to what was attached when the call was admitted; empty: nothing was.
	Attachment id.Attachment `json:"attachment,omitempty"`
	Epoch      int           `json:"epoch,omitempty"`
	Lent       call.Lent     `json:"lent,omitzero"` // by a connection, to a machine's tool
	IssuedAt   time.Time     `json:"iat"`
	ExpiresAt  time.Time     `json:"exp"`
}

// Signer signs permits with one key.
type Signer struct {
	key     id.Key
	private ed25519.PrivateKey
}

// NewSigner makes a signer of a key that is, or is about to be, published.
func NewSigner(k id.Key, private ed25519.PrivateKey) *Signer {
	return &Signer{key: k, private: private}
}

// Sign gives the permit's text: key id, claims and signature, joined by dots.
func (s *Signer) Sign(c Claims) (string, error) {
	if life := c.ExpiresAt.Sub(c.IssuedAt); life <= 0 || life > MaxLife {
		return "", problem.New(problem.Internal, "a permit of %s is outside (0, %s]", life, MaxLife)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	signed := string(s.key) + "." + base64.RawURLEncoding.EncodeToString(body)
	sig := ed25519.Sign(s.private, []byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// Keyring knows the published keys. Its zero value trusts nobody; use NewKeyring.
type Keyring struct {
	root ed25519.PublicKey
	mu   sync.RWMutex
	keys map[id.Key]ed25519.PublicKey
}

// NewKeyring makes a keyring that believes what the deployment's root key signed.
func NewKeyring(root ed25519.PublicKey) *Keyring {
	return &Keyring{root: root, keys: map[id.Key]ed25519.PublicKey{}}
}

// Add takes a published key, if the root key signed it for permits.
func (k *Keyring) Add(p key.Published) error {
	if p.Purpose != Purpose {
		return nil
	}
	if len(k.root) != ed25519.PublicKeySize { // Verify panics on a key of another size
		return problem.New(problem.Denied, "key %s cannot be checked: this process was given no root key", p.Key)
	}
	if len(p.Public) != ed25519.PublicKeySize || !ed25519.Verify(k.root, p.SignedBytes(), p.Signature) {
		return problem.New(problem.Denied, "key %s is not signed by this deployment's root key", p.Key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[p.Key] = bytes.Clone(p.Public)
	return nil
}

// Verify reads a permit and checks its signature, audience and time. What it says has still to be compared with the
// call at hand: see Claims.Covers.
func (k *Keyring) Verify(text string, audience call.Route, now time.Time) (Claims, error) {
	var c Claims
	parts := strings.Split(text, ".")
	if len(parts) != 3 || len(text) > 8<<10 {
		return c, problem.New(problem.Denied, "the permit is malformed")
	}
	k.mu.RLock()
	public, ok := k.keys[id.Key(parts[0])]
	k.mu.RUnlock()
	if !ok {
		return c, problem.New(problem.Denied, "the permit is signed by a key that was not published")
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	// Written again, since the decoder takes several spellings of one signature: a permit has one text.
	if err != nil || base64.RawURLEncoding.EncodeToString(sig) != parts[2] || !ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), sig) {
		return c, problem.New(problem.Denied, "the permit's signature is not valid")
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, problem.Wrap(err, problem.Denied, "the permit is malformed")
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return c, problem.Wrap(err, problem.Denied, "the permit is malformed")
	}
	switch {
	case c.Audience != audience:
		return c, problem.New(problem.Denied, "the permit is for executor %q", c.Audience)
	case now.After(c.ExpiresAt):
		return c, problem.New(problem.Expired, "the permit expired at %s", c.ExpiresAt.Format(time.RFC3339))
	case c.IssuedAt.After(now.Add(maxSkew)) || c.ExpiresAt.Sub(c.IssuedAt) > MaxLife:
		return c, problem.New(problem.Denied, "the permit's times are not valid")
	}
	return c, nil
}

// Covers says whether the permit is for this request.
func (c Claims) Covers(tenant id.Tenant, r call.Requested, requestedSeq uint64) error {
	if c.Tenant != tenant || c.Run != r.Run || c.Call != r.Call || c.Tool != r.Tool ||
		c.ArgsDigest != r.ArgsDigest || c.Requested != requestedSeq {
		return problem.New(problem.Denied, "the permit is for another call")
	}
	return nil
}
