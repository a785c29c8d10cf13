package cage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/schemas/environment"
)

// Rules say what is in the cage.
type Rules struct {
	Volume  string             `json:"volume"`           // read and write
	Roots   []environment.Root `json:"roots,omitempty"`  // besides
	Network bool               `json:"network"`          // the machine's own; otherwise a network with nothing but itself
	Hidden  []string           `json:"hidden,omitempty"` // with Own: directories that are empty in the cage, whose sockets nobody in it can reach
	Own     bool               `json:"own"`              // this process is the first of namespaces of its own: see Furnish
	Most    int                `json:"most"`             // processes and threads of the commands' user
	System  []string           `json:"system,omitempty"` // read and execute; empty: what programs need

	// Programs may be begun, by the paths that their links lead to; empty: any.
	Programs []string `json:"programs,omitempty"`
	// Container is the one around the cage; nil: there is none.
	Container *Container `json:"container,omitempty"`
}

// system is what programs need to run at all.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/etc", "/opt", "/nix", "/proc", "/sys/devices/system/cpu"}

// devices may be written, and are made of nothing.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"}

var deviceDirs = []string{"/dev/pts", "/dev/shm"}

// Close closes the cage around this process. Of what it says is held, each was tried. An error means that less holds than
// a command may ever run with: the caller must not run any.
func Close(r Rules) (is environment.Isolation, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return is, fmt.Errorf("no_new_privs: %w", err)
	}
	is.NoNewPrivs = true
	// Whatever loses its parent in here becomes this process's child, and so is found.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return is, fmt.Errorf("subreaper: %w", err)
	}
	is.Network = !r.Network && onlyLoopback()
	is.Container = r.Container.around()
	if abi, abiErr := landlocksys.LandlockGetABIVersion(); abiErr == nil && abi > 0 {
		if err := r.landlock(abi); err != nil {
			return is, fmt.Errorf("landlock: %w", err)
		}
		if !tryEscape(r) {
			is.Landlock = abi
		}
	}
	if err := filter(); err != nil {
		return is, fmt.Errorf("seccomp: %w", err)
	}
	is.Seccomp = tryMount()
	return is, nil
}

// landlock allows the volume, the roots and what programs need. It is never best effort: with the ABI that is there, all
// of it holds or the cage is not closed.
func (r Rules) landlock(abi int) error {
	paths := r.System
	if len(paths) == 0 && r.Container == nil {
		paths = system
	}
	writable := func(rule landlock.FSRule) landlock.Rule {
		if abi >= 2 { // moving files between directories
			rule = rule.WithRefer()
		}
		return rule
	}
	device := func(rule landlock.FSRule) landlock.Rule {
		rule = rule.IgnoreIfMissing()
		if abi >= 5 { // a terminal's size
			rule = rule.WithIoctlDev()
		}
		return rule
	}
	rules := []landlock.Rule{
		landlock.RODirs(paths...).IgnoreIfMissing(), writable(landlock.RWDirs(r.Volume)),
		device(landlock.RWFiles(devices...)), device(landlock.RWDirs(deviceDirs...)),
	}
	if r.ownTmp() {
		rules = append(rules, writable(landlock.RWDirs("/tmp")))
	}
	for _, root := range r.Roots {
		if root.Write {
			rules = append(rules, writable(landlock.RWDirs(root.Path)))
		} else {
			rules = append(rules, landlock.RODirs(root.Path))
		}
	}
	if r.Container != nil {
		image, err := r.Container.image(writable, device)
		if err != nil {
			return err
		}
		rules = append(rules, image...)
	}
	configs := []landlock.Config{landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7}
	config := configs[min(abi, len(configs))-1]
	if err := config.RestrictPaths(rules...); err != nil {
		return err
	}
	if abi >= 6 {
		return config.RestrictScoped() // no signals to, and no abstract sockets of, what is outside
	}
	return nil
}

// tryEscape says whether something outside the cage can still be listed: the directory above the volume, or that above it.
func tryEscape(r Rules) bool {
	if r.Container != nil {
		_, err := os.ReadDir(r.Container.Hidden)
		return !errors.Is(err, os.ErrPermission)
	}
	for at := filepath.Dir(r.Volume); ; at = filepath.Dir(at) {
		inside := false
		for _, root := range r.Roots {
			inside = inside || at == root.Path || strings.HasPrefix(at, root.Path+"/")
		}
		if !inside {
			_, err := os.ReadDir(at)
			return !errors.Is(err, os.ErrPermission)
		}
		if at == "/" {
			return false // the machine exposes everything
		}
	}
}

// tryMount says that the filter refuses what it has to, in the words of the filter and not of a missing privilege.
func tryMount() bool {
	_, _, errno := unix.Syscall6(unix.SYS_KEYCTL, 0, 0, 0, 0, 0, 0)
	return errno == unix.EPERM
}

// onlyLoopback says that this process's network reaches nobody.
func onlyLoopback() bool {
	raw, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		name, _, isDevice := strings.Cut(line, ":")
		if isDevice && strings.TrimSpace(name) != "lo" {
			return false
		}
	}
	return true
}
