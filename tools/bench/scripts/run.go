package scripts

import (
	"context"
	"log/slog"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Config says how long it is measured.
type Config struct {
	Worker  string        // the jsworker program
	Scripts int           // how many scripts of each kind are timed, one after the other
	Round   time.Duration // how long each rate is measured
	Node    bool          // also measure node's vm and isolated-vm, which is installed by npm
}

// Default takes about two minutes.
func Default() Config { return Config{Scripts: 60, Round: 4 * time.Second, Node: true} }

func (c Config) validate() error {
	if c.Worker == "" || c.Scripts < 1 || c.Round <= 0 {
		return problem.New(problem.Invalid, "name the jsworker program, and measure at least one script and some time")
	}
	return nil
}

// Run measures everything. An engine that is not there is skipped, and the report says why.
func Run(ctx context.Context, cfg Config, log *slog.Logger) (Report, error) {
	if err := cfg.validate(); err != nil {
		return Report{}, err
	}
	r := Report{Load: loadAverage(), Values: map[string]map[Engine]float64{}, Skipped: map[Engine]string{}}
	if err := house(ctx, cfg, log, &r); err != nil {
		return r, err
	}
	if err := neighbours(ctx, cfg, log, &r); err != nil {
		return r, err
	}
	if !cfg.Node {
		r.Skipped[NodeVM], r.Skipped[Isolated] = "not asked for", "not asked for"
		return r, nil
	}
	return r, peers(ctx, cfg, &r)
}
