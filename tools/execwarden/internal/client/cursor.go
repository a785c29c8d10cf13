package client

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

// Cursor is a place in the event streams. Its text is control:activity, such as 12:3456.
type Cursor ask.Cursor

func (c Cursor) String() string { return fmt.Sprintf("%d:%d", c.Control, c.Activity) }

// ParseCursor reads a cursor's text.
func ParseCursor(text string) (Cursor, error) {
	control, activity, ok := strings.Cut(text, ":")
	c, errC := strconv.ParseUint(control, 10, 63)
	a, errA := strconv.ParseUint(activity, 10, 63)
	if !ok || errC != nil || errA != nil {
		return Cursor{}, problem.New(problem.Invalid, "cursor %.60q is not control:activity, such as 12:3456", text)
	}
	return Cursor{Control: c, Activity: a}, nil
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
	switch schemas.Stream(e.Stream) {
	case schemas.Control:
		c.Control = max(c.Control, e.Seq)
	case schemas.Activity:
		c.Activity = max(c.Activity, e.Seq)
	}
	return c
}

// further is the cursor behind both. A place never moves back.
func (c Cursor) further(o Cursor) Cursor {
	return Cursor{Control: max(c.Control, o.Control), Activity: max(c.Activity, o.Activity)}
}
