package sentence

import (
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/schemas/visit"
)

// Visited says what a person may do on a machine.
func Visited(e visit.Admitted) string {
	on := fmt.Sprintf(" on volume %s of %s", e.Volume, e.Environment)
	switch {
	case e.Way == visit.Preview:
		return fmt.Sprintf("a person may look at port %d", e.Port) + on
	case len(e.Argv) > 0:
		return "a person may run " + strings.Join(e.Argv, " ") + on
	}
	return "a person may have a shell" + on
}

// Left says how a person's visit to a machine ended.
func Left(e visit.Ended) string {
	text := fmt.Sprintf("%s: the visit ended, %s", e.Environment, e.Reason)
	switch {
	case e.Signal != "":
		text += " by " + e.Signal
	case e.SHA256 != "":
		text += fmt.Sprintf(" with %d", e.Code)
	}
	text += fmt.Sprintf("; %d bytes went there and %d came back", e.In, e.Out)
	if e.Survivors > 0 {
		text += fmt.Sprintf("; %d processes were left", e.Survivors)
	}
	return text
}
