package ask

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/schemas"
)

// Cursor is a place in the streams: the last sequence that was seen of each. It never moves back.
type Cursor struct {
	Control  uint64 `json:"control"`
	Activity uint64 `json:"activity"`
}

// String is a cursor as people and Last-Event-ID carry it: control:activity, such as 12:3456.
func (c Cursor) String() string { return fmt.Sprintf("%d:%d", c.Control, c.Activity) }

// ParseCursor reads a cursor's text.
func ParseCursor(text string) (Cursor, error) {
	control, activity, ok := strings.Cut(text, ":")
	c, errC := strconv.ParseUint(control, 10, 63)
	a, errA := strconv.ParseUint(activity, 10, 63)
	if !ok || errC != nil || errA != nil {
		return Cursor{}, fmt.Errorf("cursor %.60q is not control:activity, such as 12:3456", text)
	}
	return Cursor{Control: c, Activity: a}, nil
}

// Past is the cursor behind an event.
func (c Cursor) Past(stream schemas.Stream, seq uint64) Cursor {
	switch stream {
	case schemas.Control:
		c.Control = max(c.Control, seq)
	case schemas.Activity:
		c.Activity = max(c.Activity, seq)
	}
	return c
}

// Further is the cursor behind both.
func (c Cursor) Further(o Cursor) Cursor {
	return Cursor{Control: max(c.Control, o.Control), Activity: max(c.Activity, o.Activity)}
}
