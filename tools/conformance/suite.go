package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// revisions of the protocol that are required whole.
var revisions = []string{"2025-11-25", "2026-07-28"}

// leg is what the suite found in one revision.
type leg struct {
	revision string
	required []string            // scenarios
	unscored map[string]string   // scenarios that are run and do not count, with the suite's reason
	failed   map[string][]string // what failed, of scenarios that did not hold
	ran      map[string]bool
	code     int // which the suite ended with
}

// suite runs a leg through the shim of the revision's connection.
func (s *site) suite(ctx context.Context, t tree, keep, revision string) (*leg, error) {
	l := &leg{revision: revision, unscored: map[string]string{}, failed: map[string][]string{}, ran: map[string]bool{}}
	if err := l.requirements(filepath.Join(string(t), "node_modules/@modelcontextprotocol/conformance/requirements", revision+".yaml")); err != nil {
		return nil, err
	}
	dir := keep
	if dir == "" {
		dir = s.dir
	}
	dir = filepath.Join(dir, "suite-"+revision)
	if err := os.RemoveAll(dir); err != nil { // of the run before
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := t.command(ctx, "conformance", "server", "--url", s.shims[revision].at, "--requirements", revision, "-o", dir)
	out, err := cmd.CombinedOutput()
	if werr := os.WriteFile(filepath.Join(dir, "suite.log"), out, 0o644); werr != nil {
		return nil, werr
	}
	if l.code, err = exitCode(err); err != nil {
		return nil, fmt.Errorf("the suite did not end: %w: %.2000s", err, out)
	}
	return l, l.read(dir)
}

// requirements reads what the suite itself says is required.
func (l *leg) requirements(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all struct {
		Server    []string `yaml:"server"`
		NotScored []struct {
			Scenario string `yaml:"scenario"`
			Leg      string `yaml:"leg"`
			Reason   string `yaml:"reason"`
		} `yaml:"not_scored"`
	}
	if err := yaml.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(all.Server) == 0 {
		return fmt.Errorf("%s requires nothing of a server", path)
	}
	l.required = all.Server
	for _, n := range all.NotScored {
		if n.Leg == "server" {
			l.unscored[n.Scenario] = n.Reason
		}
	}
	return nil
}

// read reads the suite's own record of its checks: a folder for each scenario, named for it and the time.
func (l *leg) read(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*server-*", "checks.json"))
	if err != nil {
		return err
	}
	for _, path := range found {
		scenario := scenarioOf(filepath.Base(filepath.Dir(path)))
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []struct {
			ID      string `json:"id"`
			Status  string `json:"status"`
			Message string `json:"errorMessage"`
		}
		if err := json.Unmarshal(raw, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				l.ran[scenario] = true
			case "FAILURE":
				l.failed[scenario] = append(l.failed[scenario], fmt.Sprintf("%s: %.200s", c.ID, c.Message))
			}
		}
	}
	return nil
}

// scenarioOf is the scenario of a folder server-<scenario>-<time>, or authorization-server-<scenario>-<time, such as 2026-11-30T23-21-25-686Z>.
func scenarioOf(folder string) string {
	_, name, _ := strings.Cut(folder, "server-")
	const stamp = len("-2026-11-30T23-21-25-686Z")
	if len(name) > stamp {
		name = name[:len(name)-stamp]
	}
	return name
}

// held says whether a scenario ran and nothing in it failed.
func (l *leg) held(scenario string) bool { return l.ran[scenario] && len(l.failed[scenario]) == 0 }

func (l *leg) passed() (n int) {
	for _, r := range l.required {
		if l.held(r) {
			n++
		}
	}
	return n
}

// fault is what of the required does not hold, nil if nothing. The suite has to agree.
func (l *leg) fault() error {
	var faults []error
	for _, r := range l.required {
		switch {
		case len(l.failed[r]) > 0:
			faults = append(faults, fmt.Errorf("%s %s: %s", l.revision, r, strings.Join(l.failed[r], "; ")))
		case !l.ran[r]:
			faults = append(faults, fmt.Errorf("%s %s did not run", l.revision, r))
		}
	}
	if l.code != 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s: the suite ended with code %d, though every required scenario seems to hold", l.revision, l.code))
	}
	return errors.Join(faults...)
}

// write tells what was found.
func (l *leg) write(out io.Writer) {
	fmt.Fprintf(out, "%s: %d of %d required scenarios hold\n", l.revision, l.passed(), len(l.required))
	for _, r := range l.required {
		if !l.held(r) {
			fmt.Fprintf(out, "  FAILS %s: %s\n", r, strings.Join(l.failed[r], "; "))
		}
	}
	names := make([]string, 0, len(l.unscored))
	for name := range l.unscored {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(l.failed[name]) > 0 {
			fmt.Fprintf(out, "  not scored (%s), fails: %s: %s\n", l.unscored[name], name, why(name))
		}
	}
}

// why says why a scenario that is not scored fails.
func why(scenario string) string {
	switch {
	case strings.HasPrefix(scenario, "tasks-"):
		return "the reference server has none of the tools that it calls; the leg of tasks, with a server that has, is what counts"
	case scenario == "server-sse-polling":
		return "the reference server does not end a stream for its client to come back to, and the scenario is on hold for that in the suite"
	case scenario == "http-custom-header-server-validation":
		return "Mcp-Param headers are not held against the arguments; the arguments alone are decided on, digested and recorded"
	}
	return "the reason is not known; see the suite's results (-keep)"
}
