package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// exits ends a command's help with its exit codes. ok, failed and usage mean the same everywhere unless said
// otherwise.
func exits(text string, codes map[int]string) string {
	all := map[int]string{0: "ok", 1: "failed, or the API cannot be reached", 2: "usage", 3: "no token, or its role does not allow this", 6: "--timeout passed", 130: "interrupted"}
	for code, meaning := range codes {
		all[code] = meaning
	}
	var order []int
	for code := range all {
		order = append(order, code)
	}
	slices.Sort(order)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nExit codes:", strings.TrimSpace(text))
	for _, code := range order {
		fmt.Fprintf(&b, "\n  %-3d  %s", code, all[code])
	}
	return b.String()
}

// usage is a refusal of how a command was called.
func usage(format string, args ...any) error { return problem.New(problem.Invalid, format, args...) }
