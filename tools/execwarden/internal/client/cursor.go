package client

import (
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

// Cursor is a place in the event streams. Its text is control:activity, such as 12:3456.
type Cursor ask.Cursor

func (c Cursor) String() string { return ask.Cursor(c).String() }

// ParseCursor reads a cursor's text. Problems: invalid.
func ParseCursor(text string) (Cursor, error) {
	c, err := ask.ParseCursor(text)
	if err != nil {
		return Cursor{}, problem.New(problem.Invalid, "%s", err)
	}
	return Cursor(c), nil
}

// MarshalText implements encoding.TextMarshaler.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cursor) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCursor(string(text))
	return err
}

// covers says whether an event stands before the cursor, so that it was seen already.
func (c Cursor) covers(e Event) bool {
	switch schemas.Stream(e.Stream) {
	case schemas.Control:
		return e.Seq <= c.Control
	case schemas.Activity:
		return e.Seq <= c.Activity
	}
	return false
}

// Past is the cursor behind an event.
func (c Cursor) Past(e Event) Cursor {
	return Cursor(ask.Cursor(c).Past(schemas.Stream(e.Stream), e.Seq))
}

// further is the cursor behind both. A place never moves back.
func (c Cursor) further(o Cursor) Cursor { return Cursor(ask.Cursor(c).Further(ask.Cursor(o))) }
