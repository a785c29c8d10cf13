package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const project = "github.com/execwarden/execwarden/"

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// list asks the go command for every package of the workspace.
func list(root string) ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports",
		"./schemas/...", "./libs/...", "./services/...", "./tools/...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var packages []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// imports names every import that the plan does not allow, tests included.
func imports(packages []pkg) (faults []string) {
	for _, p := range packages {
		from := strings.TrimPrefix(p.ImportPath, project)
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if why := forbidden(from, to); why != "" {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", from, to, why))
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// forbidden says why a package, named without the project's prefix, may not import a path; "" when it may.
func forbidden(from, to string) string {
	room, _, _ := strings.Cut(from, "/")
	own, ours := strings.CutPrefix(to, project)
	target, rest, _ := strings.Cut(own, "/")
	switch {
	case room == "schemas" && !ours && strings.Contains(strings.SplitN(to, "/", 2)[0], "."):
		return "schemas imports nothing but itself and the standard library"
	case room == "schemas" && ours && target != "schemas":
		return "schemas imports nothing but itself and the standard library"
	case room == "libs" && ours && (target == "services" || target == "tools"):
		return "libs imports no service and no tool"
	case room == "services" && ours && target == "tools":
		return "services import no tool"
	case strings.HasPrefix(to, "github.com/ThreeDotsLabs/watermill") && from != "libs/bus" && from != "libs/bus_test":
		return "libs/bus is the only room with Watermill"
	}
	if room == "services" && target == "services" {
		mine, _, _ := strings.Cut(strings.TrimPrefix(from, "services/"), "/")
		theirs, _, _ := strings.Cut(rest, "/")
		if strings.TrimSuffix(mine, "_test") != theirs {
			return "a service imports no other service; ask it by RPC"
		}
	}
	return ""
}
