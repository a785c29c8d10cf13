package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	name     string              // of the suite's command
	revision string              // empty: the leg has none
	required []string            // scenarios
	unscored map[string]string   // scenarios that are run and do not count, with the suite's reason
	failed   map[string][]string // what failed, of scenarios that did not hold
	warned   map[string][]string // what is advised, and was not found
	ran      map[string]bool
	code     int // which the suite ended with
}

// The suite's legs: it is the client of our server, the server of our client, or the client of our authorization server. Its scenarios
// of the tasks extension, which are of no revision, are a leg of ours.
const (
	serverLeg        = "server"
	clientLeg        = "client"
	authorizationLeg = "authorization"
	tasksLeg         = "tasks"
)

// suite runs the leg of a server through the shim of the revision's connection.
func (s *site) suite(ctx context.Context, t tree, keep, revision string) (*leg, error) {
	l, err := t.leg(serverLeg, revision)
	if err != nil {
		return nil, err
	}
	return l, s.run(ctx, t, keep, l, io.Discard, "--url", s.shims[revision].at, "--requirements", revision)
}

// client runs the leg of a client: the suite starts a relay to the trials for each scenario.
func (s *site) client(ctx context.Context, t tree, keep, revision string) (l *leg, err error) {
	if l, err = t.leg(clientLeg, revision); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	trials, err := s.openTrials(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trials.close()) }()
	// They wait for their turn: the suite's patience has to be enough for the last.
	err = s.run(ctx, t, keep, l, io.Discard, "--command", self+" -relay "+trials.at, "--requirements", revision, "--timeout", "150000")
	trials.judge(l)
	return l, err
}

// leg is a leg with what the suite itself says is required in it.
func (t tree) leg(name, revision string) (*leg, error) {
	l := newLeg(name, revision)
	return l, l.requirements(filepath.Join(string(t), "node_modules/@modelcontextprotocol/conformance/requirements", revision+".yaml"))
}

func newLeg(name, revision string, required ...string) *leg {
	return &leg{name: name, revision: revision, required: required, unscored: map[string]string{}, failed: map[string][]string{}, warned: map[string][]string{}, ran: map[string]bool{}}
}

// folder makes an empty folder for what the suite finds in a leg.
func (s *site) folder(keep string, l *leg) (string, error) {
	dir := filepath.Join(cmp.Or(keep, s.dir), strings.Trim("suite-"+l.name+"-"+l.revision, "-"))
	if err := os.RemoveAll(dir); err != nil { // of the run before
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// run runs a leg and reads what it found. What the suite says goes to a file, and to also.
func (s *site) run(ctx context.Context, t tree, keep string, l *leg, also io.Writer, args ...string) error {
	dir, err := s.folder(keep, l)
	if err != nil {
		return err
	}
	cmd := t.command(ctx, "conformance", append([]string{l.name, "-o", dir}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, also)
	cmd.Stderr = cmd.Stdout // one pipe: nothing is written at once
	err = cmd.Run()
	if werr := os.WriteFile(filepath.Join(dir, "suite.log"), out.Bytes(), 0o644); werr != nil {
		return werr
	}
	if l.code, err = exitCode(err); err != nil {
		return fmt.Errorf("the suite did not end: %w: %.2000s", err, out.String())
	}
	return l.read(dir)
}

// requirements reads what the suite itself says is required.
func (l *leg) requirements(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all struct {
		Server    []string `yaml:"server"`
		Client    []string `yaml:"client"`
		NotScored []struct {
			Scenario string `yaml:"scenario"`
			Leg      string `yaml:"leg"`
			Reason   string `yaml:"reason"`
		} `yaml:"not_scored"`
	}
	if err := yaml.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.required = map[string][]string{serverLeg: all.Server, clientLeg: all.Client}[l.name]
	if len(l.required) == 0 {
		return fmt.Errorf("%s requires nothing of a %s", path, l.name)
	}
	for _, n := range all.NotScored {
		if n.Leg == l.name {
			l.unscored[n.Scenario] = n.Reason
		}
	}
	return nil
}

// read reads the suite's own record of its checks: a folder for each scenario, named for it and the time, below one where the
// scenario's name has a slash.
func (l *leg) read(dir string) error {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "checks.json" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range found {
		folder, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		scenario := l.scenarioOf(filepath.ToSlash(folder))
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []struct {
			ID      string `json:"id"`
			Status  string `json:"status"`
			What    string `json:"description"`
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
				l.failed[scenario] = append(l.failed[scenario], fmt.Sprintf("%s: %.200s", c.ID, cmp.Or(c.Message, c.What)))
			case "WARNING":
				l.warned[scenario] = append(l.warned[scenario], fmt.Sprintf("%s: %.200s", c.ID, cmp.Or(c.Message, c.What)))
			}
		}
	}
	return nil
}

// scenarioOf is the scenario of a folder: <scenario>-<time, such as 2026-11-30T23-21-25-686Z>, with the leg in front in all but the
// client's.
func (l *leg) scenarioOf(folder string) string {
	for _, prefix := range []string{"server-", "authorization-server-"} {
		if rest, ok := strings.CutPrefix(folder, prefix); ok && l.name != clientLeg {
			folder = rest
			break
		}
	}
	const stamp = len("-2026-11-30T23-21-25-686Z")
	return folder[:max(0, len(folder)-stamp)]
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
			faults = append(faults, fmt.Errorf("%s %s: %s", l, r, strings.Join(l.failed[r], "; ")))
		case !l.ran[r]:
			faults = append(faults, fmt.Errorf("%s %s did not run", l, r))
		}
	}
	if l.code != 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s: the suite ended with code %d, though every required scenario seems to hold", l, l.code))
	}
	return errors.Join(faults...)
}

// String implements fmt.Stringer; there may be none yet.
func (l *leg) String() string {
	if l == nil {
		return "the suite"
	}
	return strings.TrimSpace(l.name + " " + l.revision)
}

// write tells what was found.
func (l *leg) write(out io.Writer) {
	fmt.Fprintf(out, "%s: %d of %d required scenarios hold\n", l, l.passed(), len(l.required))
	for _, r := range l.required {
		if !l.held(r) {
			fmt.Fprintf(out, "  FAILS %s: %s\n", r, strings.Join(l.failed[r], "; "))
		}
		if len(l.warned[r]) > 0 {
			fmt.Fprintf(out, "  advises %s: %s\n", r, strings.Join(l.warned[r], "; "))
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
	case scenario == "auth/client-credentials-jwt", scenario == "auth/wif-jwt-bearer":
		return "a client of ours shows who it is by its secret; it has no key to sign with, and no token of a workload's own issuer"
	case scenario == "auth/enterprise-managed-authorization":
		return "a connection's tokens are of a login or of the client itself; they are not traded for those of a company's identity provider"
	case strings.HasPrefix(scenario, "auth/dpop"):
		return "tokens are bearer tokens, kept sealed in the broker; they are not bound to a key"
	case scenario == "http-custom-header-server-validation":
		return "Mcp-Param headers are not held against the arguments; the arguments alone are decided on, digested and recorded"
	}
	return "the reason is not known; see the suite's results (-keep)"
}
