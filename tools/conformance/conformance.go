package conformance

import (
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
	Suite      bool          // the legs of the suite
	Clients    bool          // the Inspector and the TypeScript clients
	Keep       string        // directory to keep the suite's results in; empty: none
	Out        io.Writer
}

// Default is everything.
func Default() Config {
	return Config{Program: ".bin/execwarden", Everything: ".bin/everything-server", Cache: ".bin/npm", Sync: 100 * time.Millisecond, Suite: true, Clients: true, Out: os.Stdout}
}

// patience bounds the whole, without what npm takes.
const patience = 5 * time.Minute

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
	var verdicts []string
	if cfg.Suite {
		for _, revision := range revisions {
			leg, err := s.suite(ctx, node, cfg.Keep, revision)
			if err != nil {
				return fmt.Errorf("%s: %w", revision, err)
			}
			leg.write(cfg.Out)
			faults = append(faults, leg.fault())
			verdicts = append(verdicts, fmt.Sprintf("%s %d/%d", revision, leg.passed(), len(leg.required)))
		}
		leg, err := s.tasks(ctx, node, cfg.Keep)
		if err != nil {
			return fmt.Errorf("tasks: %w", err)
		}
		leg.write(cfg.Out)
		faults = append(faults, leg.fault())
		verdicts = append(verdicts, fmt.Sprintf("tasks %d/%d", leg.passed(), len(leg.required)))
		faults = append(faults, s.authorization(ctx, node, cfg.Keep))
	}
	if cfg.Clients {
		faults = append(faults, s.sessions(ctx, node))
	}
	faults = append(faults, s.compare(ctx))
	if err := errors.Join(faults...); err != nil || len(verdicts) == 0 {
		return err
	}
	fmt.Fprintf(cfg.Out, "\nconformance: %s\n", strings.Join(verdicts, ", "))
	return nil
}
