package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

// separator is between a connection's name and a tool's: clients take no '.' in a name.
const separator = "__"

// maxName is the longest name of a tool that clients take.
const maxName = 64

// names remembers what was shortened. A name is always the same for the same tool.
type names struct {
	mu    sync.Mutex
	known map[string]string
}

// of is a tool's name for clients: with its connection's in front, and shortened where that is too long.
func (n *names) of(full string) string {
	name := strings.Replace(full, ".", separator, 1)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(full))
	name = name[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]string{}
	}
	n.known[name] = full
	return name
}

func (n *names) find(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	full, ok := n.known[name]
	return full, ok
}
