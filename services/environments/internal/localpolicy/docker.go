package localpolicy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/go-units"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
)

// Docker is the container that commands run in, where an environment's driver is docker.
type Docker struct {
	Image    string  `yaml:"image"`
	Pull     string  `yaml:"pull"`    // never, missing
	User     string  `yaml:"user"`    // numbers: uid or uid:gid; empty: the policy's user
	Memory   string  `yaml:"memory"`  // bytes, or with k, m, g; there is no swap besides
	CPUs     float64 `yaml:"cpus"`    // 0: no limit
	PIDs     int64   `yaml:"pids"`    // processes and threads
	Network  string  `yaml:"network"` // off, targets, or the name of a network of the engine
	ReadOnly bool    `yaml:"read_only"`
	Runtime  string  `yaml:"runtime"` // of the engine; empty: its default
	Socket   string  `yaml:"socket"`  // of the engine

	memory int64
}

// What the engine does about an image that it does not have.
const (
	Never   = "never"
	Missing = "missing"
)

// MemoryBytes is the limit of memory, in bytes; 0: none.
func (d Docker) MemoryBytes() int64 { return d.memory }

var (
	imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	word      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	numbers   = regexp.MustCompile(`^([0-9]{1,9})(?::([0-9]{1,9}))?$`)
)

// shared are networks that are no container's own: in them commands reach what listens on the machine itself.
var shared = map[string]bool{"host": true, "none": true, "container": true, "default": true, All: true}

// validate checks the section. seen are the directories that commands see: whoever reaches the engine is root on the machine.
func (d *Docker) validate(seen []string) (err error) {
	switch {
	case d.Image != "" && !imageName.MatchString(d.Image):
		return fmt.Errorf("docker image %.60q is no image's name", d.Image)
	case d.Pull != Never && d.Pull != Missing:
		return fmt.Errorf("docker pull %.60q is not never or missing", d.Pull)
	case d.CPUs < 0 || d.CPUs > 4096:
		return fmt.Errorf("docker cpus %g is outside 0 to 4096", d.CPUs)
	case d.PIDs < 64 || d.PIDs > 1<<22: // the shim's own threads are among them
		return fmt.Errorf("docker pids %d is outside 64 to %d", d.PIDs, 1<<22)
	case d.Network != Off && d.Network != Targets && (shared[d.Network] || !word.MatchString(d.Network)):
		return fmt.Errorf("docker network %.60q is not off, targets or the name of a network that containers have to themselves", d.Network)
	case d.Runtime != "" && !word.MatchString(d.Runtime):
		return fmt.Errorf("docker runtime %.60q is no runtime's name", d.Runtime)
	case !filepath.IsAbs(d.Socket) || filepath.Clean(d.Socket) != d.Socket:
		return fmt.Errorf("docker socket %.60q is no absolute path; the engine has to be this machine's, since volumes are directories of it", d.Socket)
	case d.User != "" && !numbers.MatchString(d.User):
		return fmt.Errorf("docker user %.60q is not uid or uid:gid, in numbers: the image's names are not the machine's", d.User)
	}
	for _, dir := range seen {
		if holds(dir, d.Socket) {
			return fmt.Errorf("%s holds the engine's socket %s: commands could have the whole machine", dir, d.Socket)
		}
	}
	if d.Memory != "" {
		if d.memory, err = units.RAMInBytes(d.Memory); err != nil || d.memory < 16<<20 {
			return fmt.Errorf("docker memory %.60q is no size of at least 16m", d.Memory)
		}
	}
	return nil
}

// holds says whether a path is in a directory, by its words or by where its links lead.
func holds(dir, path string) bool {
	in := func(dir, path string) bool {
		return dir == path || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	}
	return in(dir, path) || in(real(dir), real(path))
}

// real follows the links of a path as far as it is there.
func real(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if up := filepath.Dir(path); up != path {
		return filepath.Join(real(up), filepath.Base(path))
	}
	return path
}

// For fits the policy to the driver of the environment. Problems: invalid when the file does not say what that needs.
func (p *Policy) For(driver environment.Driver) error {
	if driver != environment.Docker {
		return nil
	}
	d := p.Docker
	if d.Image == "" {
		return problem.New(problem.Invalid, "the environment's driver is docker, and the policy names no image; set docker.image")
	}
	if p.Network = d.Network; p.Network != Off && p.Network != Targets {
		p.Network = "docker:" + d.Network
	}
	return p.dockerUser()
}

// dockerUser is whom commands run as in the container: the same numbers own what the file tools make. A connector that is
// not root can only let them be its own user.
func (p *Policy) dockerUser() error {
	if p.Docker.User == "" {
		return nil
	}
	m := numbers.FindStringSubmatch(p.Docker.User)
	uid, _ := strconv.Atoi(m[1]) // it is digits
	gid := uid
	if m[2] != "" {
		gid, _ = strconv.Atoi(m[2])
	}
	switch {
	case uid == 0 || gid == 0:
		return problem.New(problem.Invalid, "docker user %s: commands do not run as root", p.Docker.User)
	case os.Geteuid() == 0:
		p.uid, p.gid = uid, gid
	case uid != os.Geteuid() || gid != os.Getegid():
		return problem.New(problem.Invalid, "docker user %s: a connector that is not root runs commands as its own user, %d:%d", p.Docker.User, os.Geteuid(), os.Getegid())
	}
	return nil
}
