package machine

import (
	"strings"

	"github.com/execwarden/execwarden/schemas/environment"
)

// Has says whether a machine with this manifest has a tool. Those that every machine has are not in it.
func Has(m environment.Manifest, tool string) bool {
	switch {
	case strings.HasPrefix(tool, "browser_"):
		return m.Browser
	case strings.HasPrefix(tool, "containers_"):
		return len(m.Images) > 0
	}
	return true
}
