package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// What tokens begin with: those of members, and those of agents.
const (
	tokenPrefix = "ewt_"
	agentPrefix = "ewa_"
	secretBytes = 32
)

// Hash is the SHA-256 of a token, code or session: what is kept in its place.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// NewToken makes a token.
func NewToken() vault.Secret { return NewSecret(tokenPrefix) }

// NewSecret makes a secret of 256 random bits behind a prefix that says what it is.
func NewSecret(prefix string) vault.Secret { return vault.NewSecret(prefix + random()) }

// ParseToken checks that text has the form of a member's token, before anything is looked up.
func ParseToken(text string) (vault.Secret, error) {
	if strings.HasPrefix(text, agentPrefix) {
		return vault.Secret{}, problem.New(problem.Unauthenticated, "an agent's token (%s...) opens the MCP endpoint only; this takes a member's (%s...)", agentPrefix, tokenPrefix)
	}
	return parseSecret(tokenPrefix, text)
}

func parseSecret(prefix, text string) (vault.Secret, error) {
	body, ok := strings.CutPrefix(text, prefix)
	if raw, err := base64.RawURLEncoding.DecodeString(body); !ok || err != nil || len(raw) != secretBytes {
		return vault.Secret{}, problem.New(problem.Unauthenticated, "what was sent is not an access token (%s...)", prefix)
	}
	return vault.NewSecret(text), nil
}

// HashOf is what is kept of a secret.
func HashOf(s vault.Secret) Hash { return sha256.Sum256([]byte(s.Reveal())) }

func random() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails (it ends the program instead)
	return base64.RawURLEncoding.EncodeToString(b[:])
}
