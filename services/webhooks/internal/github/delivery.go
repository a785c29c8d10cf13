// Package github reads GitHub's webhook deliveries: first whether one is authentic, and only then what it says.
package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// MaxBody is GitHub's limit on a payload, in bytes.
const MaxBody = 25 << 20

// Delivery is an authentic delivery.
type Delivery struct {
	Event string // such as "issues"
	GUID  string // unique per event, not per delivery: two hooks may bring the same
	Body  []byte
}

var (
	eventName = regexp.MustCompile(`^[a-z_]{1,64}$`)
	guidText  = regexp.MustCompile(`^[A-Za-z0-9-]{8,64}$`)
)

// Read reads a delivery and verifies its signature over the raw bytes. The size is checked before anything is hashed.
// Problems: too_large, unauthenticated, invalid.
func Read(w http.ResponseWriter, r *http.Request, secret vault.Secret) (Delivery, error) {
	if secret.Empty() {
		return Delivery{}, problem.New(problem.Unauthenticated, "the endpoint has no secret")
	}
	if r.ContentLength > MaxBody {
		return Delivery{}, problem.New(problem.TooLarge, "the payload is over %d bytes", MaxBody)
	}
	// SHA-1 alone, or under the name of SHA-256, is not a signature.
	given, ok := strings.CutPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256=")
	mac, err := hex.DecodeString(given)
	if !ok || err != nil || len(mac) != sha256.Size {
		return Delivery{}, problem.New(problem.Unauthenticated, "the X-Hub-Signature-256 header is missing or malformed")
	}
	d := Delivery{Event: r.Header.Get("X-GitHub-Event"), GUID: r.Header.Get("X-GitHub-Delivery")}
	if !eventName.MatchString(d.Event) || !guidText.MatchString(d.GUID) {
		return Delivery{}, problem.New(problem.Invalid, "the X-GitHub-Event or X-GitHub-Delivery header is missing or malformed")
	}
	if d.Body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return Delivery{}, problem.New(problem.TooLarge, "the payload is over %d bytes", MaxBody)
		}
		return Delivery{}, problem.Wrap(err, problem.Invalid, "the payload could not be read")
	}
	want := hmac.New(sha256.New, []byte(secret.Reveal()))
	want.Write(d.Body)
	if !hmac.Equal(mac, want.Sum(nil)) {
		return Delivery{}, problem.New(problem.Unauthenticated, "the signature does not match the payload")
	}
	return d, nil
}
