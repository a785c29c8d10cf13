// Package connect is the connector's door, for the program that a customer runs on a machine.
package connect

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/host"
	"github.com/execwarden/execwarden/services/environments/internal/link"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// maxOrders is how many orders a machine carries out at once.
const maxOrders = 64

// engineEvery is how often a Docker engine that does not answer is tried.
const engineEvery = 2 * time.Second

// Config says where a connector keeps its things.
type Config struct {
	Home    string             // default: DefaultHome
	Driver  environment.Driver // of a machine that is not enrolled; default: host. One that is has that of its environment
	Policy  string             // file; default: DefaultPolicy
	Shim    string             // program; default: beside this one
	Version string
	Log     *slog.Logger
	Ready   func() // called whenever the registry has welcomed the connector; optional
}

// DefaultHome is /var/lib/execwarden-connector for root, and in the user's state directory otherwise.
func DefaultHome() string {
	if os.Geteuid() == 0 {
		return "/var/lib/execwarden-connector"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "execwarden-connector")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "state", "execwarden-connector")
}

// DefaultPolicy is /etc/execwarden/connector.yaml for root, and in the connector's home otherwise.
func DefaultPolicy(home string) string {
	if os.Geteuid() == 0 {
		return "/etc/execwarden/connector.yaml"
	}
	return filepath.Join(home, "connector.yaml")
}

func (c *Config) fill() error {
	if c.Home == "" {
		c.Home = DefaultHome()
	}
	var err error
	if c.Home, err = filepath.Abs(c.Home); err != nil { // it is mounted, and labels containers
		return problem.Wrap(err, problem.Invalid, "home %q is no directory", c.Home)
	}
	if c.Policy == "" {
		c.Policy = DefaultPolicy(c.Home)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Shim == "" {
		self, err := os.Executable()
		if err != nil {
			return problem.Wrap(err, problem.Internal, "this program's own path is not known; give --shim")
		}
		c.Shim = filepath.Join(filepath.Dir(self), "shim")
	}
	if _, err := os.Stat(c.Shim); err != nil {
		return problem.Wrap(err, problem.Invalid, "the shim is not at %s; build services/environments/cmd/shim with CGO_ENABLED=0 beside this program, or give --shim", c.Shim)
	}
	return nil
}

// Identity is what a machine was enrolled as.
type Identity = link.Identity

// Enrol enrols this machine with a token, once.
func Enrol(ctx context.Context, home, server, token string) (Identity, error) {
	if home == "" {
		home = DefaultHome()
	}
	return link.Enrol(ctx, &http.Client{Timeout: time.Minute}, home, server, token)
}

// Run connects this machine until ctx ends. What runs on it then goes on, and is found by the next Run. Problems: not_found
// when it is not enrolled or has no policy, conflict when another machine took its place, denied when the environment is
// no more.
func Run(ctx context.Context, cfg Config) error {
	h, err := open(ctx, &cfg)
	for cfg.Driver == environment.Docker && problem.CodeOf(err) == problem.Unavailable { // the engine may come after us
		cfg.Log.Warn("the machine is not ready; it is tried again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(engineEvery):
		}
		h, err = open(ctx, &cfg)
	}
	if h != nil {
		defer h.Close()
	}
	if err != nil {
		return err
	}
	l, err := link.New(link.Config{Home: cfg.Home, Version: cfg.Version, Log: cfg.Log, MaxOrders: maxOrders, Ready: cfg.Ready}, h)
	if err != nil {
		return err
	}
	return l.Run(ctx)
}

func (c *Config) findDriver() error {
	enrolled, err := link.LoadIdentity(c.Home)
	switch {
	case err == nil && c.Driver != "" && c.Driver != enrolled.Driver:
		return problem.New(problem.Invalid, "this machine is enrolled with driver %s, not %s", enrolled.Driver, c.Driver)
	case err == nil:
		c.Driver = enrolled.Driver
	case problem.CodeOf(err) != problem.NotFound:
		return err
	case c.Driver == "":
		c.Driver = environment.Host
	case !c.Driver.Valid():
		return problem.New(problem.Invalid, "driver %.40q is not host or docker", c.Driver)
	}
	return nil
}

func open(ctx context.Context, cfg *Config) (*host.Host, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	policy, err := localpolicy.Load(cfg.Policy)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Home, 0o711); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "directory %s cannot be made", cfg.Home)
	}
	if err := cfg.findDriver(); err != nil {
		return nil, err
	}
	if err := policy.For(cfg.Driver); err != nil {
		return nil, err
	}
	store, err := link.LoadStore(cfg.Home)
	if err != nil {
		return nil, err
	}
	return host.New(ctx, host.Config{Home: cfg.Home, Name: store.Name, Driver: cfg.Driver, Shim: cfg.Shim, Policy: policy, Log: cfg.Log})
}

// Check tries what this machine exposes and which isolation it really enforces, by running a command in its cage. It tells
// what it found even when that is less than the policy wants, which is the error then.
func Check(ctx context.Context, cfg Config) (environment.Manifest, error) {
	h, err := open(ctx, &cfg)
	if h == nil {
		return environment.Manifest{}, err
	}
	defer h.Close()
	if err == nil {
		err = h.Probe(ctx)
	}
	return h.Manifest(), err
}

// Init writes the policy that a machine begins with, for its owner to change. It keeps one that is there. Problems: conflict.
func Init(home, path string) (string, error) {
	if home == "" {
		home = DefaultHome()
	}
	if path == "" {
		path = DefaultPolicy(home)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return path, problem.Wrap(err, problem.Invalid, "directory %s cannot be made", filepath.Dir(path))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return path, problem.New(problem.Conflict, "%s is there already", path)
	}
	if err != nil {
		return path, problem.Wrap(err, problem.Invalid, "%s cannot be made", path)
	}
	_, err = f.Write(localpolicy.TemplateFor(filepath.Join(home, "volumes")))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return path, err
}
