// Command schemagen writes what follows from the catalogue: JSON Schema per event, AsyncAPI, the documentation of
// events, and the users of a NATS server.
//
//	go run ./tools/schemagen [directory]      write
//	go run ./tools/schemagen -check [directory]   exit 1 when what is there differs
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	check := flag.Bool("check", false, "write nothing; exit 1 when a file differs from what would be written")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	if err := run(root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(root, name)
		if check {
			there, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(there, files[name]) {
				return fmt.Errorf("%s is not what the catalogue says; run make gen and look at the difference", name)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return extra(root, files)
}

// extra finds a schema of an event that is no more. An event that was released stays in the catalogue.
func extra(root string, files map[string][]byte) error {
	there, err := filepath.Glob(filepath.Join(root, schemaDir, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range there {
		name := schemaDir + "/" + filepath.Base(path)
		if _, ok := files[name]; !ok {
			return fmt.Errorf("%s is of no event in the catalogue", name)
		}
	}
	return nil
}

func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	if err := jsonSchemas(files); err != nil {
		return nil, err
	}
	if err := asyncAPI(files); err != nil {
		return nil, err
	}
	files["docs/events.md"] = eventsPage()
	files["deploy/nats.conf"] = natsConf()
	return files, nil
}
