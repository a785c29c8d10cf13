package follow

import (
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
)

// Parse reads a cursor that a client sent. Problems: invalid.
func Parse(text string) (ask.Cursor, error) {
	c, err := ask.ParseCursor(text)
	if err != nil {
		return ask.Cursor{}, problem.New(problem.Invalid, "%s", err)
	}
	return c, nil
}
