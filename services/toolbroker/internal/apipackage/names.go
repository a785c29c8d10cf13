package apipackage

import (
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// A model sees a tool as <connection>__<tool>, and model APIs refuse names over 64 characters.
const (
	maxShownName = 64
	separator    = 2
	spare        = 1
	minToolName  = 12 // a hash, and something to read
)

// naming gives tools their names. A name is what grants are given for, so it stays with its operation for good: also
// when the document calls the operation differently later, and when the operation goes and another one would like it.
type naming struct {
	most    int
	taken   map[string]string // name to the operation's key
	frozen  map[string]string // key to the name that it had
	retired map[string]string // name to the key of an operation that is no more
}

// nameTools names the operations, which come sorted by key.
func nameTools(ops []Operation, manifest Manifest, previous *Package, prefix int) (retired map[string]string, err error) {
	n := naming{most: maxShownName - separator - spare - prefix, taken: map[string]string{}, frozen: map[string]string{}, retired: map[string]string{}}
	if n.most < minToolName {
		return nil, problem.New(problem.Invalid, "a connection's name of %d characters leaves too few for its tools'", prefix)
	}
	if previous != nil {
		for name, key := range previous.Retired {
			n.retired[name] = key
			n.frozen[key] = name
		}
		for i := range previous.Operations {
			o := &previous.Operations[i]
			n.retired[o.Tool] = o.Key() // until the operation is met again
			n.frozen[o.Key()] = o.Tool
		}
	}
	for _, name := range []string{connection.SearchOperations, connection.DescribeOperation, connection.CallOperation} {
		n.taken[name] = "a tool that stands for others"
	}
	left := make([]*Operation, 0, len(ops))
	for i := range ops {
		o := &ops[i]
		if o.Tool = overrideOf(manifest, o).Rename; o.Tool != "" {
			if err := n.give(o, "rename"); err != nil {
				return nil, err
			}
			continue
		}
		left = append(left, o)
	}
	rest := left[:0]
	for _, o := range left {
		if o.Tool = n.frozen[o.Key()]; o.Tool == "" || n.taken[o.Tool] != "" || len(o.Tool) > n.most {
			rest = append(rest, o)
			continue
		}
		if err := n.give(o, "name"); err != nil {
			return nil, err
		}
	}
	// Of several that would like the same name none gets it, so that the order in the document does not matter.
	wishes := map[string]int{}
	for _, o := range rest {
		wishes[n.wish(o)]++
	}
	for _, o := range rest {
		o.Tool = n.wish(o)
		if owner, was := n.retired[o.Tool]; wishes[o.Tool] > 1 || n.taken[o.Tool] != "" || was && owner != o.Key() {
			o.Tool = n.hashed(o.Tool, o.Key())
		}
		if err := n.give(o, "name"); err != nil {
			return nil, err
		}
	}
	for name := range n.retired {
		if n.taken[name] != "" {
			delete(n.retired, name)
		}
	}
	slices.SortFunc(ops, func(a, b Operation) int { return strings.Compare(a.Tool, b.Tool) })
	return n.retired, nil
}

func (n *naming) give(o *Operation, what string) error {
	if len(o.Tool) > n.most {
		return problem.New(problem.Invalid, "the %s %q of %s is over %d characters", what, o.Tool, o.Route(), n.most)
	}
	if owner := n.taken[o.Tool]; owner != "" {
		return problem.New(problem.Conflict, "the %s %q of %s is taken by %s", what, o.Tool, o.Route(), owner)
	}
	n.taken[o.Tool] = o.Key()
	return nil
}

// wish is the name that an operation gets if nobody else wants it.
func (n *naming) wish(o *Operation) string {
	text := o.ID
	if slug(text, 1, "-") == "" {
		text = o.Key()
	}
	name := slug(text, 4*maxShownName, "-")
	if len(name) <= n.most {
		return name
	}
	return n.hashed(name, o.Key())
}

func (n *naming) hashed(name, key string) string {
	hash := "_" + shortHash(key)
	if most := n.most - len(hash); len(name) > most {
		name = strings.TrimRight(name[:most], "_-")
	}
	return name + hash
}

func overrideOf(m Manifest, o *Operation) Override {
	if v, ok := m.Operations[o.ID]; ok && o.ID != "" {
		return v
	}
	return m.Operations[o.Route()]
}
