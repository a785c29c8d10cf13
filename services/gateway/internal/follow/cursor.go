package follow

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

// Text is a cursor as people and Last-Event-ID carry it: control:activity.
func Text(c ask.Cursor) string { return fmt.Sprintf("%d:%d", c.Control, c.Activity) }

// Parse reads a cursor.
func Parse(text string) (ask.Cursor, error) {
	control, activity, ok := strings.Cut(text, ":")
	c, errC := strconv.ParseUint(control, 10, 63)
	a, errA := strconv.ParseUint(activity, 10, 63)
	if !ok || errC != nil || errA != nil {
		return ask.Cursor{}, problem.New(problem.Invalid, "cursor %.60q is not control:activity, such as 12:3456", text)
	}
	return ask.Cursor{Control: c, Activity: a}, nil
}

// pass moves a cursor past an event. It never moves back.
func pass(c ask.Cursor, e ask.Event) ask.Cursor {
	switch schemas.Stream(e.Stream) {
	case schemas.Control:
		c.Control = max(c.Control, e.Seq)
	case schemas.Activity:
		c.Activity = max(c.Activity, e.Seq)
	}
	return c
}

func further(a, b ask.Cursor) ask.Cursor {
	return ask.Cursor{Control: max(a.Control, b.Control), Activity: max(a.Activity, b.Activity)}
}
