package host

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/container"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// onDocker has each shim as the first process of a container. Files are the machine's: the volume and the roots are in the
// container under the same paths.
type onDocker struct {
	engine  *container.Engine
	shim    string
	outside []string
}

func openDocker(ctx context.Context, cfg Config) (*onDocker, error) {
	program := filepath.Join(cfg.Home, "shim")
	if err := install(cfg.Shim, program); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the shim cannot be copied to %s", program)
	}
	engine, err := container.Open(ctx, container.Owner{Name: cfg.Name, Home: cfg.Home}, cfg.Policy)
	if err != nil {
		return nil, err
	}
	return &onDocker{engine: engine, shim: program, outside: cage.Around()}, nil
}

// install copies the shim to where the engine finds it also when this program is in a container itself. Containers that
// run keep the one that they began with.
func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".shim-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}

// There is no group for each command in a container: its commands are found by their mark and parents, and all of them end
// with the container.
func (d *onDocker) fit(_ id.Attachment, cfg *shim.Config) {
	cfg.Dir, cfg.Rules.Own = container.Dir, false // its namespaces are the container's
	cfg.Rules.Container = &cage.Container{Hidden: container.Hidden, Outside: d.outside}
}

func (d *onDocker) start(ctx context.Context, p *place) error {
	a := p.lease.Attachment
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for started := false; ; {
		if !started {
			found, err := d.engine.Start(ctx, container.Spec{Attachment: a, Dir: p.dir, Config: configFile, Shim: d.shim, Volume: p.volume})
			if err != nil {
				return err
			}
			started = !found // one that was found may be about to end
		}
		if _, err := p.shim.List(ctx); err == nil {
			return nil
		}
		if why, ended := d.engine.Ended(ctx, a); ended && started {
			_, _, _ = d.end(ctx, a, false) // else the next start does
			return problem.New(problem.Unavailable, "commands cannot be held in a container: %.400s", why)
		}
		select {
		case <-ctx.Done():
			// It is not ended: what runs in it may be about to be answered again.
			return problem.New(problem.Unavailable, "the attachment's container runs, and what looks after its commands does not answer")
		case <-tick.C:
		}
	}
}

// end removes the container. What was in it ends with its first process, so that nothing can be left once it is gone; how
// much that was is only known when the shim could be asked.
func (d *onDocker) end(ctx context.Context, a id.Attachment, _ bool) (killed, survivors int, err error) {
	_, err = d.engine.End(ctx, a)
	return 0, 0, err
}

func (d *onDocker) sweep(ctx context.Context, wanted func(id.Attachment) bool) error {
	_, err := d.engine.Sweep(ctx, wanted)
	return err
}

func (d *onDocker) env() []string { return d.engine.Env() }

func (d *onDocker) close() { _ = d.engine.Close() } // containers go on
