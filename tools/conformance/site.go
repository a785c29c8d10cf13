package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/execwarden/execwarden/tools/sample/warden"
)

// site is what is tried: the reference server in both eras, ExecWarden in front of it, and the shims of the suite's agent.
type site struct {
	dir     string
	program string
	out     io.Writer
	warden  *warden.Warden
	servers []*exec.Cmd
	shims   map[string]*shim  // by revision
	tokens  map[string]string // of agents
	owner   string            // the owner's
	trials  atomic.Int64      // made so far: each has a connection of its own name

	jobs     *jobs
	jobShims []*shim
}

// Connections to the reference server, by the revision that it serves there, and the agents.
var connections = map[string]string{"2025-11-25": "stateful", "2026-07-28": "stateless"}

const (
	suiteAgent   = "suite"
	clientsAgent = "clients"
	trialsAgent  = "trials"
)

// manifests are applied as a user applies them. The suite's agent may do everything, and nobody approves for it; sampling is named,
// since no selector of tools means it. The clients' has one call that a
// person approves. The trials' may do everything at connections that are yet to come.
var manifests = template.Must(template.New("").Parse(`
kind: Agent
name: suite
hosting: external
---
kind: Agent
name: clients
hosting: external
---
kind: Agent
name: trials
hosting: external
---
kind: Grant
name: trials
agent: trials
tool: "*.*"
approval: never
{{- range .}}
---
kind: Connection
name: {{.Name}}
type: mcp
url: {{.URL}}
private: ["{{.Address}}"]
trusted: true
---
kind: Grant
name: suite-{{.Name}}
agent: suite
tool: {{.Name}}.*
approval: never
---
kind: Grant
name: suite-{{.Name}}-sampling
agent: suite
tool: {{.Name}}.sampling/createMessage
approval: never
---
kind: Grant
name: clients-{{.Name}}-progress
agent: clients
tool: {{.Name}}.test_tool_with_progress
approval: never
---
kind: Grant
name: clients-{{.Name}}-elicitation
agent: clients
tool: {{.Name}}.{{.Elicits}}
approval: never
---
kind: Grant
name: clients-{{.Name}}-text
agent: clients
tool: {{.Name}}.test_simple_text
approval: always
{{- end}}
`))

var jobsManifest = template.Must(template.New("").Parse(jobsManifests))

// elicits is the tool by which the reference server asks its client, in each revision.
var elicits = map[string]string{"2025-11-25": "test_elicitation", "2026-07-28": "test_input_required_result_elicitation"}

type served struct{ Name, URL, Address, Elicits string }

func open(ctx context.Context, cfg Config) (s *site, err error) {
	s = &site{program: cfg.Program, out: cfg.Out, shims: map[string]*shim{}, tokens: map[string]string{}}
	if s.dir, err = os.MkdirTemp("", "execwarden-conformance-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if err = os.Chmod(s.dir, 0o711); err != nil { // Postgres's own user goes through it
		return s, err
	}
	var all []served
	for _, revision := range revisions {
		address, err := s.serve(ctx, cfg.Everything, revision)
		if err != nil {
			return s, err
		}
		all = append(all, served{connections[revision], "http://" + address, address, elicits[revision]})
	}
	if s.jobs, err = openJobs(); err != nil {
		return s, err
	}
	log, err := os.Create(filepath.Join(s.dir, "up.log"))
	if err != nil {
		return s, err
	}
	defer log.Close() // the processes have it open themselves
	s.warden, err = warden.Start(ctx, warden.Config{Program: cfg.Program, Data: filepath.Join(s.dir, "data"), Listen: "127.0.0.1:0", HooksListen: "127.0.0.1:0",
		Flags: []string{"--sync-interval", cfg.Sync.String()}, Out: log})
	if err != nil {
		raw, _ := os.ReadFile(log.Name()) // what can be read of why
		return s, fmt.Errorf("%w\n%s", err, raw)
	}
	return s, s.configure(ctx, all)
}

// serve starts the reference server and waits until it listens.
func (s *site) serve(ctx context.Context, program, revision string) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	cmd := exec.Command(program, "-http", address, fmt.Sprintf("-stateless=%t", revision >= "2026-07-28"))
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.servers = append(s.servers, cmd)
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return address, conn.Close()
		}
		select {
		case <-ctx.Done():
			return "", errors.New("the reference server does not listen")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *site) configure(ctx context.Context, all []served) error {
	var text bytes.Buffer
	if err := manifests.Execute(&text, all); err != nil {
		return err
	}
	if err := jobsManifest.Execute(&text, struct{ At, Address string }{s.jobs.at, strings.TrimPrefix(s.jobs.at, "http://")}); err != nil {
		return err
	}
	path := filepath.Join(s.dir, "manifests.yaml")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return err
	}
	if err := s.quietly(ctx, "apply", "-f", path, "--yes"); err != nil {
		return err
	}
	if err := s.warden.AwaitTools(ctx); err != nil {
		return err
	}
	owner, err := os.ReadFile(s.warden.At().TokenFile)
	if err != nil {
		return err
	}
	s.owner = strings.TrimSpace(string(owner))
	for _, agent := range []string{suiteAgent, clientsAgent, trialsAgent, tasksAgent} {
		file := filepath.Join(s.dir, agent+".token")
		if err := s.quietly(ctx, "tokens", "create", "--agent", agent, "--token-out", file); err != nil {
			return err
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.tokens[agent] = strings.TrimSpace(string(raw))
	}
	for _, revision := range revisions {
		shim, err := openShim(s.warden.At().API, connections[revision], s.tokens[suiteAgent])
		if err != nil {
			return err
		}
		s.shims[revision] = shim
	}
	return nil
}

// quietly runs a command and shows what it said only if it fails.
func (s *site) quietly(ctx context.Context, args ...string) error {
	if out, err := s.warden.Command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("execwarden %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (s *site) close() error {
	var faults []error
	for _, shim := range s.shims {
		faults = append(faults, shim.close())
	}
	for _, shim := range s.jobShims {
		faults = append(faults, shim.close())
	}
	if s.warden != nil {
		if err := s.warden.Stop(); err != nil {
			log, _ := os.ReadFile(filepath.Join(s.dir, "up.log")) // what can be read of why
			faults = append(faults, fmt.Errorf("%w: %s", err, log[max(0, len(log)-20_000):]))
		}
	}
	for _, server := range s.servers {
		_ = server.Process.Kill() // it has nothing to keep
		_ = server.Wait()
	}
	return errors.Join(append(faults, s.jobs.close(), os.RemoveAll(s.dir))...)
}
