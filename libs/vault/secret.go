package vault

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is text that never prints: formatting, logging and marshalling it give [redacted]. Reveal is the one way to
// the text, so that its uses can be found.
type Secret struct {
	text *string // a pointer, since fmt prints an unexported field of somebody's struct without asking its methods
}

const redacted = "[redacted]"

// NewSecret takes text into care.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal gives the text, for the one request that needs it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty says whether there is no secret.
func (s Secret) Empty() bool { return s.Reveal() == "" }

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) } // whoever prints is told by f

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, which covers JSON and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
