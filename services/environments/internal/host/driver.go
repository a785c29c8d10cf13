package host

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// driver is where the shims of attachments are. Everything else is the same for each.
type driver interface {
	// fit completes a shim's configuration, as that has to be where it runs.
	fit(a id.Attachment, cfg *shim.Config)
	// start starts the shim whose configuration is in the place's directory. It returns when that answers.
	start(ctx context.Context, p *place) error
	// end ends what is left of a shim, whether it was asked to end before or could not be asked. asked says which.
	end(ctx context.Context, a id.Attachment, asked bool) (killed, survivors int, err error)
	// sweep ends what earlier lives left whose attachments nobody wants.
	sweep(ctx context.Context, wanted func(id.Attachment) bool) error
	// env is what commands have in their environment besides what they are given.
	env() []string
	close()
}

func (h *Host) open(ctx context.Context) (driver, error) {
	if h.cfg.Driver == environment.Docker {
		return openDocker(ctx, h.cfg)
	}
	return &onHost{shim: h.cfg.Shim, cgroup: h.cgroup}, nil
}

// onHost has shims as processes of the machine that are nobody's children.
type onHost struct {
	shim   string
	cgroup string // of the connector; empty: there are none
}

func (d *onHost) fit(a id.Attachment, cfg *shim.Config) {
	if d.cgroup != "" {
		cfg.Cgroup = filepath.Join(d.cgroup, string(a))
	}
}

// startWithin is how long a shim may take to answer.
const startWithin = 10 * time.Second

func (d *onHost) start(ctx context.Context, p *place) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	// It begins another process that answers in its place, and ends: neither this process's end nor its terminal's is the
	// shim's.
	cmd := exec.CommandContext(ctx, d.shim, "begin", filepath.Join(p.dir, configFile))
	cmd.Dir, cmd.Env = "/", []string{}
	if said, err := cmd.CombinedOutput(); err != nil {
		return problem.Wrap(err, problem.Unavailable, "commands cannot be held on this machine: %.400s", strings.TrimSpace(string(said)))
	}
	return nil
}

// end finds by the group what a shim that is gone could not end: its launcher and commands went with it, as far as the
// kernel took them along.
func (d *onHost) end(ctx context.Context, a id.Attachment, asked bool) (killed, survivors int, err error) {
	if asked || d.cgroup == "" {
		return 0, 0, nil
	}
	group := cage.Group{Dir: filepath.Join(d.cgroup, string(a))}
	killed, survivors = group.End(ctx, 0)
	group.Remove()
	return killed, survivors, nil
}

func (d *onHost) sweep(context.Context, func(id.Attachment) bool) error { return nil }

func (d *onHost) env() []string { return nil }

func (d *onHost) close() {}
