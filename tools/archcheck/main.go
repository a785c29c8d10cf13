// Command archcheck holds the house to its plan: who may import whom, what every service has, and that the files that
// the walk through the code names are there. It is a program and no test, since a test that looks at sibling modules
// stays cached after they changed.
//
//	go run ./tools/archcheck [directory]
//
// Exit codes: 0 the house stands, 1 it does not, 2 it could not be looked at.
package main

import (
	"fmt"
	"os"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	packages, err := list(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "archcheck:", err)
		os.Exit(2)
	}
	faults := imports(packages)
	faults = append(faults, rooms(root)...)
	faults = append(faults, walk(root)...)
	for _, f := range faults {
		fmt.Fprintln(os.Stderr, "archcheck:", f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
	fmt.Printf("archcheck: %d packages, the house stands\n", len(packages))
}
