package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Config says what is tried, and with which programs.
type Config struct {
	Program    string        // execwarden
	Everything string        // the reference server, built from the SDK's module
	Cache      string        // directory for what npm installs
	Sync       time.Duration // sync_interval of execwarden up; 0 is an fsync for each ack
	Legs       []string      // of the suite: server, client, authorization, tasks
	Clients    bool          // the Inspector and the TypeScript clients
	Keep       string        // directory to keep the suite's results in; empty: none
	Out        io.Writer
}

// Default is everything.
func Default() Config {
	return Config{Program: ".bin/execwarden", Everything: ".bin/everything-server", Cache: ".bin/npm", Sync: 100 * time.Millisecond, Legs: []string{serverLeg, clientLeg, authorizationLeg, tasksLeg}, Clients: true, Out: os.Stdout}
}

// patience bounds the whole, without what npm takes.
const patience = 8 * time.Minute

// Run tries everything. It fails when a required scenario does, when a client's session does, or when the record does not hold
// what was asked.
func Run(ctx context.Context, cfg Config) (err error) {
	node, err := install(ctx, cfg.Cache)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	var faults []error
	var of verdicts
	if len(cfg.Legs) > 0 {
		if of, err = s.legs(ctx, node, cfg); err != nil {
			return err
		}
		faults = append(faults, of.fault)
	}
	if cfg.Clients {
		faults = append(faults, s.sessions(ctx, node))
	}
	faults = append(faults, s.compare(ctx))
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Fprintln(cfg.Out)
	if len(of.client) > 0 {
		fmt.Fprintf(cfg.Out, "conformance client: %s\n", strings.Join(of.client, ", "))
	}
	if of.tasks != "" {
		fmt.Fprintf(cfg.Out, "conformance %s\n", of.tasks)
	}
	if len(of.server) > 0 {
		fmt.Fprintf(cfg.Out, "conformance: %s\n", strings.Join(of.server, ", "))
	}
	return nil
}

// verdicts are what the suite's legs came to, by revision.
type verdicts struct {
	server, client []string
	tasks          string // which are an extension, and of no revision
	fault          error
}

// legs runs the suite's legs.
func (s *site) legs(ctx context.Context, node tree, cfg Config) (v verdicts, err error) {
	take := func(l *leg, err error) (string, error) {
		if err != nil {
			return "", fmt.Errorf("%s: %w", l, err)
		}
		l.write(cfg.Out)
		v.fault = errors.Join(v.fault, l.fault())
		return fmt.Sprintf("%s %d/%d", cmp.Or(l.revision, l.name), l.passed(), len(l.required)), nil
	}
	each := func(run func(context.Context, tree, string, string) (*leg, error)) (out []string, err error) {
		for _, revision := range revisions {
			text, err := take(run(ctx, node, cfg.Keep, revision))
			if err != nil {
				return nil, err
			}
			out = append(out, text)
		}
		return out, nil
	}
	for _, name := range cfg.Legs {
		switch name {
		case serverLeg:
			v.server, err = each(s.suite)
		case clientLeg:
			v.client, err = each(s.client)
		case authorizationLeg:
			_, err = take(s.authorization(ctx, node, cfg.Keep))
		case tasksLeg:
			v.tasks, err = take(s.tasks(ctx, node, cfg.Keep))
		default:
			err = fmt.Errorf("the suite has no leg %q", name)
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}
