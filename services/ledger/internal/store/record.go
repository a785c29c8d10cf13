package store

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Record is one message of a stream, to be taken in.
type Record struct {
	Stream      string
	Incarnation string // of the stream; a stream that was made anew has another
	Seq         uint64 // in the stream
	Tenant      string
	Subject     string
	Raw         []byte // what is hashed: the message's body as it was stored
	StoredAt    time.Time
	Meta        Meta // zero when Raw could not be decoded: it is a leaf all the same
}

// Meta is what an event says about itself. Empty fields are unknown.
type Meta struct {
	EventID string
	Type    string
	Noun    string
	Key     string
	Kind    string
	Time    time.Time
	Actor   string
	Run     string
	Call    string
}

// maxMeta bounds a field: the indexes hold no more than 2.7 KB in a row.
const maxMeta = 256

// storable returns m, or nothing if one of its fields is more than Postgres can hold: then it is no event of ours,
// and the raw bytes say what it was. Times are cut to the microseconds that Postgres keeps.
func (m Meta) storable() Meta {
	for _, field := range []string{m.EventID, m.Type, m.Noun, m.Key, m.Kind, m.Actor, m.Run, m.Call} {
		if len(field) > maxMeta || !utf8.ValidString(field) || strings.ContainsRune(field, 0) {
			return Meta{}
		}
	}
	if year := m.Time.Year(); year < 1 || year > 9999 {
		return Meta{}
	}
	m.Time = m.Time.UTC().Truncate(time.Microsecond)
	return m
}

// printable is s as Postgres text can hold it.
func printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// orNull is how an empty field is stored.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
