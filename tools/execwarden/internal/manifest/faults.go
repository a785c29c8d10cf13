package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// faults collects everything that is wrong with the files, so that one reading finds all of it.
type faults []fault

type fault struct {
	at   Where
	what string
}

func (f *faults) add(at Where, format string, args ...any) {
	*f = append(*f, fault{at, fmt.Sprintf(format, args...)})
}

// maxFaults is how many faults are told at once.
const maxFaults = 20

// err is all faults in the order in which they stand in the files.
func (f *faults) err() error {
	if len(*f) == 0 {
		return nil
	}
	slices.SortStableFunc(*f, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.at.File, b.at.File), cmp.Compare(a.at.Line, b.at.Line))
	})
	lines := []string{"the files cannot be applied as they are; nothing was sent"}
	for i, one := range *f {
		if i == maxFaults {
			lines = append(lines, fmt.Sprintf("and %d more", len(*f)-maxFaults))
			break
		}
		lines = append(lines, one.at.String()+": "+one.what)
	}
	return problem.New(problem.Invalid, "%s", strings.Join(lines, "\n"))
}
