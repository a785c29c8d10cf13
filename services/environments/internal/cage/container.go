package cage

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
)

// Container is what is known of the container around a cage. Its file system is an image of the machine's owner, all of
// which commands see as far as their user may; and its network is made already.
type Container struct {
	Hidden  string   `json:"hidden"`  // the shim's directory, at the top
	Outside []string `json:"outside"` // the namespaces of whoever made it, as Around gives them
}

// kinds are the namespaces that make a container.
var kinds = []string{"mnt", "pid", "net", "ipc", "uts"}

// Around names the namespaces that this process is in.
func Around() (out []string) {
	for _, kind := range kinds {
		if name, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// around says whether this process really is in a container: it shares none of its namespaces with the connector.
func (c *Container) around() bool {
	if c == nil {
		return false
	}
	own := Around()
	return len(own) == len(kinds) && len(c.Outside) == len(kinds) && !slices.ContainsFunc(own, func(name string) bool { return slices.Contains(c.Outside, name) })
}

// image allows everything in the container but the shim's directory. What is written there goes with the container.
func (c *Container) image(writable, device func(landlock.FSRule) landlock.Rule) ([]landlock.Rule, error) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil, err
	}
	var rules []landlock.Rule
	for _, e := range entries {
		path := "/" + e.Name()
		info, err := os.Stat(path)
		switch {
		case err != nil || path == filepath.Clean(c.Hidden) || path == "/dev":
		case path == "/proc", path == "/sys":
			rules = append(rules, landlock.RODirs(path))
		case info.IsDir():
			rules = append(rules, writable(landlock.RWDirs(path)))
		case info.Mode().IsRegular():
			rules = append(rules, device(landlock.RWFiles(path)))
		}
	}
	return rules, nil
}
