package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
)

// separator is between a connection's name and a tool's: clients take no '.' in a name.
const separator = "__"

// maxName is the longest name of a tool that clients take.
const maxName = 64

// Bounds of what a conversation remembers: names, and bytes of one.
const (
	maxKnown = 4096
	maxFull  = 512
)

// marked is the end of every name that is not simply the two parts put together, and of no other.
var marked = regexp.MustCompile(`_[0-9a-f]{8}$`)

// names remembers the names that do not say whose they are. A name is always the same for the same tool.
type names struct {
	mu    sync.Mutex
	known map[string]string
}

// of is a tool's name for clients: with its connection's in front. One that is too long, that would be read as another's
// because the connection's name has a separator in it, or that looks as if it had a mark, gets a mark of its own.
func (n *names) of(full string) string {
	name := strings.Replace(full, ".", separator, 1)
	if back, ok := plainly(name); ok && back == full && len(name) <= maxName && !marked.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(full))
	name = strings.ToValidUTF8(name[:min(len(name), maxName-9)], "") + "_" + hex.EncodeToString(sum[:4])
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]string{}
	}
	if len(n.known) >= maxKnown {
		clear(n.known) // what is called by one of them is listed again first
	}
	n.known[name] = full
	return name
}

// plainly takes a name without a mark apart.
func plainly(name string) (full string, ok bool) {
	con, tool, ok := strings.Cut(name, separator)
	return con + "." + tool, ok && con != "" && tool != ""
}

func (n *names) find(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	full, ok := n.known[name]
	return full, ok
}

// find gives the full name of what a client calls by name. list has every name said again: a client may know one from
// another instance, or from before this one began.
func (c *conversation) find(name string, list func() error) (full string, ok bool, err error) {
	if !marked.MatchString(name) {
		full, ok = plainly(name)
		return full, ok, nil
	}
	if full, ok = c.names.find(name); ok {
		return full, true, nil
	}
	if err := list(); err != nil {
		return "", false, err
	}
	full, ok = c.names.find(name)
	return full, ok, nil
}
