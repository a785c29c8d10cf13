// Package localpolicy is what the owner of a machine lets it be used for. It is a file on the machine, which nobody but its
// owner may write, and no order changes it: what may be done is what it allows and what the permit allows.
package localpolicy

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
)

// maxFile bounds the file, in bytes.
const maxFile = 256 << 10

// Template is the commented file that `execwarden connect init` writes. It is a policy as it stands.
//
//go:embed policy.yaml
var Template []byte

// Policy is what the file says. A field that is left out has the value of the template.
type Policy struct {
	Volumes      string        `yaml:"volumes"`     // the directory that they are made in
	MaxVolumes   int           `yaml:"max_volumes"` // at most 64
	Checkpoints  int           `yaml:"checkpoints"` // of each volume that are kept, at most 64; 0: none is made
	VolumeSize   string        `yaml:"volume_size"` // bytes, or with k, m, g; empty: no limit
	Roots        []Root        `yaml:"roots"`
	Programs     []string      `yaml:"programs"` // absolute paths; empty: any
	Shell        bool          `yaml:"shell"`
	Preview      []string      `yaml:"preview"` // ports, or ranges of them, that a person may look at
	Browser      string        `yaml:"browser"` // the program, by its path in the cage; empty: none
	Containers   Containers    `yaml:"containers"`
	Env          []string      `yaml:"env"`       // names that a command may be given besides the standard ones
	Network      string        `yaml:"network"`   // off, targets, all
	Execs        int           `yaml:"execs"`     // at once, of one attachment
	Processes    int           `yaml:"processes"` // of the user that commands run as
	MinIsolation []string      `yaml:"min_isolation"`
	OrphanGrace  time.Duration `yaml:"orphan_grace"`
	User         string        `yaml:"user"` // that commands run as, when the connector runs as root
	Docker       Docker        `yaml:"docker"`
	PrivateHTTP  []PrivateHTTP `yaml:"private_http"`
	Targets      []string      `yaml:"targets"` // of network targets: host or host:port, at most 64

	digest   string
	uid, gid int
	size     int64
}

// Root is a directory that commands see besides their volume.
type Root struct {
	Path  string `yaml:"path"`
	Write bool   `yaml:"write"`
}

// Networks of commands.
const (
	Off     = "off"     // a network with nothing but itself
	Targets = "targets" // the same, with a proxy in it that reaches what is listed
	All     = "all"     // the machine's own
)

// Load reads a policy. Whoever else could write the file could let themselves in: such a file is refused.
func Load(path string) (*Policy, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.NotFound, "there is no policy %s; execwarden connect init writes one", path)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, problem.New(problem.Invalid, "%s is no plain file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, problem.New(problem.Invalid, "%s can be written by others than its owner; chmod go-w it", path)
	case ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return nil, problem.New(problem.Invalid, "%s belongs neither to root nor to the user that the connector runs as", path)
	case info.Size() > maxFile:
		return nil, problem.New(problem.TooLarge, "%s is over %d bytes", path, maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
	}
	p, err := Parse(raw)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s: %v", path, problem.DetailOf(err).Message)
	}
	return p, nil
}

// Parse reads a policy's text. A key that nobody knows is refused: it might have been a limit.
func Parse(raw []byte) (*Policy, error) {
	var p Policy
	if err := yaml.Unmarshal(Template, &p); err != nil {
		return nil, fmt.Errorf("the template: %w", err)
	}
	given := p
	switch err := yaml.NewDecoder(bytes.NewReader(raw), yaml.DisallowUnknownField()).Decode(&given); {
	case err == nil:
		p = given
	case !errors.Is(err, io.EOF): // a file that says nothing leaves everything as it is
		return nil, problem.New(problem.Invalid, "%s", strings.SplitN(yaml.FormatError(err, false, false), "\n", 2)[0])
	}
	if err := p.validate(); err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	sum := sha256.Sum256(raw)
	p.digest = hex.EncodeToString(sum[:])
	return &p, nil
}

var isolations = []string{"no_new_privs", "landlock", "seccomp", "cgroup", "network", "container"}

func (p *Policy) validate() error {
	if !filepath.IsAbs(p.Volumes) || filepath.Clean(p.Volumes) == "/" {
		return fmt.Errorf("volumes %q is no absolute path of a directory", p.Volumes)
	}
	p.Volumes = filepath.Clean(p.Volumes)
	if p.MaxVolumes < 1 || p.MaxVolumes > 64 {
		return fmt.Errorf("max_volumes %d is outside 1 to 64", p.MaxVolumes)
	}
	if p.Checkpoints < 0 || p.Checkpoints > 64 {
		return fmt.Errorf("checkpoints %d is outside 0 to 64", p.Checkpoints)
	}
	if p.VolumeSize != "" {
		var err error
		if p.size, err = units.RAMInBytes(p.VolumeSize); err != nil || p.size < 1<<20 {
			return fmt.Errorf("volume_size %.60q is no size of at least 1m", p.VolumeSize)
		}
	}
	if p.Execs < 1 || p.Execs > 256 {
		return fmt.Errorf("execs %d is outside 1 to 256", p.Execs)
	}
	if p.Processes < 16 || p.Processes > 1<<20 {
		return fmt.Errorf("processes %d is outside 16 to %d", p.Processes, 1<<20)
	}
	if len(p.Roots) > 64 || len(p.Programs) > 64 || len(p.Env) > 64 {
		return errors.New("roots, programs and env have at most 64 entries each")
	}
	for i, r := range p.Roots {
		if !filepath.IsAbs(r.Path) {
			return fmt.Errorf("root %q is no absolute path", r.Path)
		}
		p.Roots[i].Path = filepath.Clean(r.Path)
	}
	for _, program := range p.Programs {
		if !filepath.IsAbs(program) || filepath.Clean(program) != program {
			return fmt.Errorf("program %q is no absolute path", program)
		}
	}
	if len(p.Programs) > 0 && p.Shell {
		return errors.New("programs are listed and shell is true: a shell runs any program; set shell: false")
	}
	if err := p.validatePreview(); err != nil {
		return err
	}
	if p.Browser != "" && (!filepath.IsAbs(p.Browser) || filepath.Clean(p.Browser) != p.Browser) {
		return fmt.Errorf("browser %q is no absolute path", p.Browser)
	}
	if err := p.Containers.validate(); err != nil {
		return err
	}
	if p.Network != Off && p.Network != Targets && p.Network != All {
		return fmt.Errorf("network %q is not off, targets or all", p.Network)
	}
	for _, what := range p.MinIsolation {
		if !slices.Contains(isolations, what) {
			return fmt.Errorf("min_isolation %q is not one of %s", what, strings.Join(isolations, ", "))
		}
	}
	if p.OrphanGrace < 0 || p.OrphanGrace > 24*time.Hour {
		return fmt.Errorf("orphan_grace %s is outside 0 to 24h", p.OrphanGrace)
	}
	seen := []string{p.Volumes}
	for _, r := range p.Roots {
		seen = append(seen, r.Path)
	}
	if err := p.Docker.validate(seen); err != nil {
		return err
	}
	if err := p.validateHTTP(); err != nil {
		return err
	}
	if err := p.validateTargets(); err != nil {
		return err
	}
	return p.findUser()
}

// findUser looks up whom commands run as. Only root can give them another user than its own, and has to.
func (p *Policy) findUser() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(p.User)
	if err != nil {
		return fmt.Errorf("user %q is not there; commands do not run as root", p.User)
	}
	p.uid, _ = strconv.Atoi(u.Uid)
	p.gid, _ = strconv.Atoi(u.Gid)
	if p.uid == 0 {
		return errors.New("user root: commands do not run as root")
	}
	return nil
}

// Commands is whom commands run as; zero: as the connector itself.
func (p *Policy) Commands() (uid, gid int) { return p.uid, p.gid }

// Manifest tells the registry what the machine exposes, and which isolation was tried and holds.
func (p *Policy) Manifest(platform string, is environment.Isolation) environment.Manifest {
	m := environment.Manifest{Policy: p.digest, Platform: platform, Isolation: is, Shell: p.Shell, Network: p.Network, Programs: p.Programs, Preview: p.Preview, Browser: p.Browser != "", Images: p.Containers.Images, Execs: p.Execs, Volumes: p.MaxVolumes}
	for _, r := range p.Roots {
		m.Roots = append(m.Roots, environment.Root{Path: r.Path, Write: r.Write})
	}
	if p.Network == Targets {
		m.Targets = p.Targets
	}
	for _, t := range p.PrivateHTTP {
		m.PrivateHTTP = append(m.PrivateHTTP, t.String())
	}
	return m
}

// denied is a refusal of this side, which names its rule.
func denied(rule, format string, args ...any) error {
	return problem.New(problem.Denied, "%s (the machine's policy, rule %s)", fmt.Sprintf(format, args...), rule)
}

// Isolated says whether what holds is as much as the policy wants.
func (p *Policy) Isolated(is environment.Isolation) error {
	has := map[string]bool{"no_new_privs": is.NoNewPrivs, "landlock": is.Landlock > 0, "seccomp": is.Seccomp, "cgroup": is.Cgroup, "network": is.Network, "container": is.Container}
	for _, what := range p.MinIsolation {
		if !has[what] {
			return denied("min_isolation", "commands are not held back by %s on this machine", what)
		}
	}
	if (p.Network == Off || p.Network == Targets) && !is.Network {
		return denied("network", "commands cannot be given a network of their own on this machine")
	}
	return nil
}

// MayHold says whether a volume that holds so many bytes may be written to, and commands run on it.
func (p *Policy) MayHold(bytes int64) error {
	if p.size > 0 && bytes > p.size {
		return denied("volume_size", "the volume holds %s of %s; remove something first, which rm does by argv", units.BytesSize(float64(bytes)), units.BytesSize(float64(p.size)))
	}
	return nil
}

// Limited says that volumes have a limit.
func (p *Policy) Limited() bool { return p.size > 0 }

// MayShell says whether command lines may be given to a shell.
func (p *Policy) MayShell() error {
	if !p.Shell {
		return denied("shell", "command lines may not be given to a shell; use argv")
	}
	return nil
}

// standard are the variables that every command may be given.
var standard = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "CI", "NO_COLOR", "PAGER", "EDITOR"}

// loaders are variables that make a program run other code than its own.
var loaders = []string{"LD_", "DYLD_", "GCONV_PATH"}

// MaySet says whether a variable may be given to a command.
func (p *Policy) MaySet(name string) error {
	for _, prefix := range loaders {
		if strings.HasPrefix(name, prefix) && !slices.Contains(p.Env, name) {
			return denied("env", "%s may not be set", name)
		}
	}
	if slices.Contains(p.Env, "*") || slices.Contains(standard, name) || slices.Contains(p.Env, name) {
		return nil
	}
	return denied("env", "%s may not be set", name)
}

// TemplateFor is the template with the directory that volumes are made in.
func TemplateFor(volumes string) []byte {
	return bytes.Replace(Template, []byte("/var/lib/execwarden-connector/volumes"), []byte(volumes), 1)
}
