package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// services lists what every service has, with its name in place of %s.
var services = []string{"agentloop", "approvals", "environments", "gateway", "ledger", "runtime", "toolbroker", "webhooks"}

var always = []string{"doc.go", "service.go", "cmd/%s/main.go"}

var promises = []string{"// Hears: ", "// Says: ", "// Owns: ", "// Never: "}

// layers are names for rooms that say nothing of what is in them.
var layers = []string{"util", "utils", "helper", "helpers", "common", "model", "models", "types", "misc", "shared"}

// named are rooms that a domain word has called like a layer: the models that agents think with.
var named = []string{"services/agentloop/internal/model"}

// rooms checks the shape of services and the names of folders.
func rooms(root string) (faults []string) {
	for _, s := range services {
		for _, file := range always {
			name := "services/" + s + "/" + strings.ReplaceAll(file, "%s", s)
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				faults = append(faults, name+" is missing: every service has the same shape")
			}
		}
		doc, err := os.ReadFile(filepath.Join(root, "services", s, "doc.go"))
		if err != nil {
			continue // said above
		}
		for _, p := range promises {
			if !strings.Contains(string(doc), p) {
				faults = append(faults, fmt.Sprintf("services/%s/doc.go does not say %q", s, strings.Trim(p, "/ ")))
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path) // both are under root
		if base := d.Name(); base == ".git" || base == "node_modules" || base == "testdata" || base == ".bin" {
			return filepath.SkipDir
		}
		if slices.Contains(layers, d.Name()) && !slices.Contains(named, filepath.ToSlash(name)) {
			faults = append(faults, name+" is named by layer; name it by noun or technology")
		}
		return nil
	})
	if err != nil {
		faults = append(faults, err.Error())
	}
	return faults
}

// fileInWalk finds what looks like a file of the project in the walk's text.
var fileInWalk = regexp.MustCompile("`((?:schemas|libs|services|tools|deploy|docs)/[A-Za-z0-9_./-]+\\.[a-z]+)(?::[A-Za-z0-9_.]+)?`")

// walk checks that every file that docs/02-walk.md names exists, and that it names some.
func walk(root string) (faults []string) {
	const doc = "docs/02-walk.md"
	text, err := os.ReadFile(filepath.Join(root, doc))
	if err != nil {
		return []string{doc + " is missing"}
	}
	found := fileInWalk.FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			faults = append(faults, fmt.Sprintf("%s names %s, which is not there", doc, m[1]))
		}
	}
	if len(found) == 0 {
		faults = append(faults, doc+" names no file")
	}
	return faults
}
