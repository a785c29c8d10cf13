package host

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/cageproxy"
	"github.com/execwarden/execwarden/services/environments/internal/container"
	"github.com/execwarden/execwarden/services/environments/internal/files"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/internal/privatehttp"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Config says where things are.
type Config struct {
	Home   string // of the connector
	Name   string // of the connector, which no other has
	Driver environment.Driver
	Shim   string // the shim program
	Policy *localpolicy.Policy
	Log    *slog.Logger
}

// Host is one machine.
type Host struct {
	cfg       Config
	cgroup    string // of the connector; empty: there are none
	isolation environment.Isolation
	driver    driver
	probe     *probe
	http      *privatehttp.Door
	ways      *cageproxy.Proxy // nil: commands have none out

	beginning sync.Mutex // what is called off is not begun at the same moment
	readying  sync.Mutex // a shim is begun once, and not for what ends at the same moment

	mu     sync.Mutex
	places map[id.Attachment]*place
	flying map[id.Call]*flight
	gates  map[string]*sync.RWMutex // by volume
	rooms  map[string]room          // by volume
	broker Broker                   // nil: the machine was not connected yet

	tails     chan tail
	following map[string]bool // by call

	reaching   sync.Mutex
	containing sync.Mutex
	beside     *container.Engine // for containers beside commands; nil: it was not needed yet

	visiting sync.Mutex
	visitors map[id.Visit]*visitor
	entering map[id.Visit]chan struct{} // visits that begin now; closed when they have, or have not
	life     context.Context            // of what is about visits
	endLife  context.CancelFunc
	working  sync.WaitGroup
}

// place is one attachment.
type place struct {
	lease  connector.Lease
	dir    string // of the shim, and of receipts
	volume string
	shim   *shim.Client
	files  *files.Tree
	outlet outlet

	watches watches
	window  window
}

// New tries what holds commands back here, by really holding one, and finds the attachments of an earlier life.
func New(ctx context.Context, cfg Config) (*Host, error) {
	h := &Host{cfg: cfg, places: map[id.Attachment]*place{}, flying: map[id.Call]*flight{}, gates: map[string]*sync.RWMutex{}, rooms: map[string]room{},
		tails: make(chan tail, maxTails), following: map[string]bool{}, visitors: map[id.Visit]*visitor{}, entering: map[id.Visit]chan struct{}{}}
	var err error
	if h.http, err = privatehttp.Open(cfg.Policy.PrivateHTTP); err != nil {
		return nil, err
	}
	if top := cage.Unified(); top != "" {
		h.cgroup = filepath.Join(top, "execwarden-"+filepath.Base(cfg.Home))
		if err := os.Mkdir(h.cgroup, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			h.cgroup = ""
		}
	}
	for _, dir := range []string{filepath.Join(cfg.Home, "attachments"), cfg.Policy.Volumes} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "directory %s cannot be made", dir)
		}
	}
	if h.ways, err = cageproxy.New(cfg.Policy.TargetRules(), cfg.Log); err != nil {
		return nil, err
	}
	h.life, h.endLife = context.WithCancel(context.WithoutCancel(ctx))
	if h.driver, err = h.open(ctx); err != nil {
		h.endLife()
		return nil, err
	}
	h.sweep(ctx)
	h.sweepEnded()
	h.sweepCopies()
	if h.probe, err = h.newProbe(ctx); err != nil {
		h.endLife()
		h.driver.close()
		return nil, err
	}
	e, err := h.tryCommand(ctx)
	if err != nil {
		h.Close()
		return nil, err
	}
	h.isolation = e.Isolation
	return h, cfg.Policy.Isolated(h.isolation)
}

// Close lets go of the machine. What runs goes on, and is found by the next life.
func (h *Host) Close() {
	h.endLife()
	h.working.Wait()
	h.probe.close(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.places {
		p.close()
	}
	h.driver.close()
	if h.beside != nil {
		_ = h.beside.Close() // containers go on
	}
}

func (p *place) close() {
	p.outlet.close()
	p.shim.Close()
	if p.files != nil {
		p.files.Close()
	}
}

// keepEnded is how long what is known of an attachment stays after its end: its receipts answer for calls that are asked
// about late.
const keepEnded = 24 * time.Hour

// sweepEnded removes what attachments left that ended long ago.
func (h *Host) sweepEnded() {
	all, _ := filepath.Glob(filepath.Join(h.cfg.Home, "attachments", "att_*")) // the pattern is right
	for _, dir := range all {
		_, held := os.Stat(filepath.Join(dir, leaseFile))
		info, err := os.Stat(dir)
		if errors.Is(held, os.ErrNotExist) && err == nil && time.Since(info.ModTime()) > keepEnded {
			if err := os.RemoveAll(dir); err != nil {
				h.cfg.Log.Warn("an attachment's records are not removed", "dir", dir, "err", err)
			}
		}
	}
}

// Manifest implements link.Machine.
func (h *Host) Manifest() environment.Manifest {
	return h.cfg.Policy.Manifest(runtime.GOOS+"/"+runtime.GOARCH, h.isolation)
}

// OrphanGrace implements link.Machine.
func (h *Host) OrphanGrace() time.Duration { return h.cfg.Policy.OrphanGrace }

// Known lists the attachments of an earlier life, whose commands may run on.
func (h *Host) Known() (out []connector.Lease) {
	entries, _ := os.ReadDir(filepath.Join(h.cfg.Home, "attachments")) // made by New
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(h.cfg.Home, "attachments", e.Name(), leaseFile))
		var l connector.Lease
		if err == nil && json.Unmarshal(raw, &l) == nil && string(l.Attachment) == e.Name() && !strings.HasPrefix(e.Name(), probing) {
			out = append(out, l)
		}
	}
	return out
}

// Files of an attachment's directory.
const (
	leaseFile  = "lease.json"
	configFile = "shim.json"
)

// Open implements link.Machine.
func (h *Host) Open(ctx context.Context, l connector.Lease) error {
	if !id.ValidName(l.Volume) {
		return problem.New(problem.Invalid, "volume %.60q is no name", l.Volume)
	}
	if _, err := id.Parse[id.Attachment](string(l.Attachment)); err != nil {
		return problem.Wrap(err, problem.Invalid, "attachment: %v", err)
	}
	h.readying.Lock()
	defer h.readying.Unlock()
	if _, there := h.place(l.Attachment); there {
		return nil
	}
	done, err := h.pass(l.Volume)
	if err != nil {
		return err
	}
	defer done()
	if err := h.roomFor(l.Volume); err != nil {
		return err
	}
	p, err := h.ready(ctx, l)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.places[l.Attachment] = p
	h.mu.Unlock()
	h.endBrowsers(ctx, p)
	h.followAgain(ctx, p)
	h.visitsAgain(p)
	return nil
}

// roomFor says whether a volume is there, or may be made.
func (h *Host) roomFor(name string) error {
	entries, err := os.ReadDir(h.cfg.Policy.Volumes)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "volumes cannot be listed")
	}
	volumes := 0
	for _, e := range entries {
		if e.Name() == name {
			return nil
		}
		if id.ValidName(e.Name()) {
			volumes++
		}
	}
	if volumes >= h.cfg.Policy.MaxVolumes {
		return problem.New(problem.Denied, "the machine has %d volumes, which is the most (the machine's policy, rule max_volumes)", volumes)
	}
	return nil
}

// ready makes a volume, and finds or starts the shim of its attachment.
func (h *Host) ready(ctx context.Context, l connector.Lease) (*place, error) {
	p := &place{lease: l, dir: filepath.Join(h.cfg.Home, "attachments", string(l.Attachment)), volume: filepath.Join(h.cfg.Policy.Volumes, l.Volume)}
	uid, gid := h.cfg.Policy.Commands()
	if err := makeVolume(p.volume, uid, gid); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "volume %s cannot be made: %v", l.Volume, err)
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "done"), 0o700); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the attachment's directory cannot be made: %v", err)
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	if err := keyfile.Write(filepath.Join(p.dir, leaseFile), string(raw)); err != nil {
		return nil, err
	}
	roots := []files.Root{{Path: p.volume, Write: true}}
	rules := cage.Rules{Volume: p.volume, Own: true, Hidden: []string{filepath.Join(h.cfg.Home, "attachments"), "/run"}, Most: h.cfg.Policy.Processes, Network: h.cfg.Policy.Network != localpolicy.Off && h.cfg.Policy.Network != localpolicy.Targets, Programs: h.cfg.Policy.Programs}
	if strings.HasPrefix(string(l.Attachment), probing) {
		rules.Programs = nil // the machine is tried with a shell, whether or not others may have one
	}
	for _, r := range h.cfg.Policy.Roots {
		roots = append(roots, files.Root{Path: r.Path, Write: r.Write})
		rules.Roots = append(rules.Roots, environment.Root{Path: r.Path, Write: r.Write})
	}
	if p.files, err = files.Open(roots, uid, gid); err != nil {
		return nil, err
	}
	p.shim = shim.Dial(p.dir)
	if _, err := p.shim.List(ctx); err == nil {
		return p, nil // it runs on from an earlier life
	}
	cfg := shim.Config{Dir: p.dir, Rules: rules, Execs: h.cfg.Policy.Execs, UID: uid, GID: gid}
	h.driver.fit(l.Attachment, &cfg)
	if raw, err = json.Marshal(cfg); err != nil {
		return nil, err
	}
	if err := keyfile.Write(filepath.Join(p.dir, configFile), string(raw)); err != nil {
		return nil, err
	}
	return p, h.driver.start(ctx, p)
}

func makeVolume(path string, uid, gid int) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	tmp := filepath.Join(path, cage.TmpDir)
	if err := os.Mkdir(tmp, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if uid == 0 {
		return nil
	}
	return errors.Join(os.Lchown(path, uid, gid), os.Lchown(tmp, uid, gid))
}

// Execs implements link.Machine.
func (h *Host) Execs() (running int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, p := range h.all() {
		list, err := p.shim.List(ctx)
		if err != nil {
			continue
		}
		for _, e := range list {
			if e.Running() {
				running++
			}
		}
	}
	return running
}

func (h *Host) all() (out []*place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.places {
		out = append(out, p)
	}
	return out
}

// at finds an attachment. One whose shim has gone is made ready again: its records are on the disk.
func (h *Host) at(ctx context.Context, a id.Attachment) (*place, error) {
	if p, ok := h.place(a); ok && p.shim.There(ctx) {
		return p, nil
	}
	h.readying.Lock()
	defer h.readying.Unlock()
	p, ok := h.place(a)
	switch {
	case !ok:
		return nil, problem.New(problem.Unavailable, "the attachment's volume is not ready")
	case p.shim.There(ctx):
		return p, nil
	}
	again, err := h.ready(ctx, p.lease)
	if err != nil {
		return nil, err
	}
	p.outlet.close()
	p.shim.Close() // whoever still reads its files lets go of them
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places[a] = again
	return again, nil
}

func (h *Host) place(a id.Attachment) (*place, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.places[a]
	return p, ok
}

// End implements link.Machine.
func (h *Host) End(ctx context.Context, e connector.End) (connector.Ended, error) {
	h.readying.Lock()
	h.mu.Lock()
	p, ok := h.places[e.Attachment]
	delete(h.places, e.Attachment)
	h.mu.Unlock()
	h.readying.Unlock()
	if !ok {
		dir := filepath.Join(h.cfg.Home, "attachments", string(e.Attachment))
		if _, err := id.Parse[id.Attachment](string(e.Attachment)); err != nil {
			return connector.Ended{}, problem.Wrap(err, problem.Invalid, "attachment: %v", err)
		}
		if _, err := os.Stat(dir); err != nil {
			return connector.Ended{}, nil // it was never here, or has ended
		}
		p = &place{dir: dir, shim: shim.Dial(dir)}
	}
	defer p.close()
	h.stopFlights(func(_ id.Call, f *flight) bool { return f.at == p })
	reason := shim.Cancelled
	if e.Revoked {
		reason = shim.Revoked
	}
	ended, err := p.shim.End(ctx, min(max(e.Grace, 0), time.Minute), reason)
	asked := err == nil
	if !asked && problem.CodeOf(err) != problem.Unavailable {
		return connector.Ended{}, err
	}
	ended.Killed += h.endContainers(ctx, e.Attachment)
	killed, survivors, err := h.driver.end(ctx, e.Attachment, asked)
	switch {
	case err == nil:
		ended.Killed, ended.Survivors = ended.Killed+killed, ended.Survivors+survivors
	case !asked:
		return connector.Ended{}, err // nobody knows what is left
	default:
		h.cfg.Log.Warn("what was around an attachment's commands is not removed yet", "attachment", e.Attachment, "err", err)
	}
	_ = os.Remove(filepath.Join(p.dir, leaseFile)) // a next life does not ask about it
	return connector.Ended{Killed: ended.Killed, Survivors: ended.Survivors}, nil
}
