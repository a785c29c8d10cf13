package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The suite's scenarios of the tasks extension, by the connection to the server that has their tools. They are not part of a revision.
// Two are left out: tasks-required-task-error, since no tool here needs its caller to take tasks, and tasks-status-notifications, which
// the suite skips.
var tasked = []struct {
	connection string
	scenarios  []string
}{
	{"jobs", []string{"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope"}},
	{"rounds", []string{"tasks-mrtr-composition"}},
}

const tasksAgent = "tasks"

// jobsManifests are what the scenarios need, for an agent of their own: a call that is answered with a task has its outcome later, and
// is left out of what is held against the ledger call by call.
const jobsManifests = `
---
kind: Agent
name: tasks
hosting: external
---
kind: Connection
name: jobs
type: mcp
url: {{.At}}` + askingJobs + `
private: ["{{.Address}}"]
trusted: true
---
kind: Connection
name: rounds
type: mcp
url: {{.At}}` + roundedJobs + `
private: ["{{.Address}}"]
trusted: true
---
kind: Grant
name: tasks-jobs
agent: tasks
tool: jobs.*
approval: never
---
kind: Grant
name: tasks-rounds
agent: tasks
tool: rounds.*
approval: never
`

// tasks runs the leg of the tasks extension.
func (s *site) tasks(ctx context.Context, t tree, keep string) (*leg, error) {
	l := newLeg(tasksLeg, "")
	dir, err := s.folder(keep, l)
	if err != nil {
		return nil, err
	}
	for _, of := range tasked {
		shim, err := openShim(s.warden.At().API, of.connection, s.tokens[tasksAgent])
		if err != nil {
			return nil, err
		}
		s.jobShims = append(s.jobShims, shim)
		for _, scenario := range of.scenarios {
			l.required = append(l.required, scenario)
			out, err := t.command(ctx, "conformance", serverLeg, "--url", shim.at, "--scenario", scenario, "--timeout", "60000", "-o", dir).CombinedOutput()
			code, err := exitCode(err)
			if err != nil {
				return nil, fmt.Errorf("the suite did not end: %w: %.2000s", err, out)
			}
			if err := os.WriteFile(filepath.Join(dir, scenario+".log"), out, 0o644); err != nil {
				return nil, err
			}
			l.code = max(l.code, code)
		}
	}
	return l, l.read(dir)
}
