package model

import (
	"fmt"
	"log/slog"
)

// Key is a provider's API key. However it is printed, logged or encoded, it shows as [redacted]; Reveal is the one way
// to its text.
type Key string

const redacted = "[redacted]"

// Reveal returns the key itself.
func (k Key) Reveal() string { return string(k) }

func (k Key) String() string               { return redacted }
func (k Key) GoString() string             { return redacted }
func (k Key) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (k Key) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format covers the verbs that bypass String, such as %d.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }
