package apipackage

import (
	"bytes"
	"encoding/json"
	"math"

	"go.yaml.in/yaml/v4"

	"github.com/execwarden/execwarden/libs/problem"
)

// fromYAML writes a YAML document as JSON. Aliases are written out, so what they stand for counts each time: a small
// text that would grow without end is refused on the way.
func fromYAML(raw []byte) (json.RawMessage, error) {
	if len(raw) > maxYAML {
		return nil, problem.New(problem.TooLarge, "a YAML file may have %d MiB; write it as JSON", maxYAML>>20)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "it is neither JSON nor YAML: %.200s", err)
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		return nil, problem.New(problem.Invalid, "the file is empty")
	}
	var w yamlWriter
	if err := w.value(root.Content[0], 1); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

type yamlWriter struct {
	out   bytes.Buffer
	nodes int
}

func (w *yamlWriter) value(n *yaml.Node, depth int) error {
	w.nodes++
	switch {
	case depth > maxDepth:
		return problem.New(problem.TooLarge, "it nests deeper than %d, at line %d", maxDepth, n.Line)
	case w.nodes > maxNodes || w.out.Len() > maxDocument:
		return problem.New(problem.TooLarge, "it has more than %d values or %d MiB when its aliases are written out", maxNodes, maxDocument>>20)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1) // an alias of itself ends at the depth
	case yaml.MappingNode:
		w.out.WriteByte('{')
		first := true
		if err := w.mapping(n, depth, map[string]bool{}, &first); err != nil {
			return err
		}
		w.out.WriteByte('}')
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
	case yaml.ScalarNode:
		return w.scalar(n)
	default:
		return problem.New(problem.Invalid, "line %d holds what JSON cannot", n.Line)
	}
	return nil
}

// mapping writes the members of a mapping, and those of the ones that it merges, which its own come before.
func (w *yamlWriter) mapping(n *yaml.Node, depth int, seen map[string]bool, first *bool) error {
	if depth > maxDepth {
		return problem.New(problem.TooLarge, "it nests deeper than %d, at line %d", maxDepth, n.Line)
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return problem.New(problem.Invalid, "the key at line %d is not a scalar", key.Line)
		case key.ShortTag() == "!!merge":
			merged = append(merged, item)
			continue
		case seen[key.Value]:
			continue // the first one stays: it is the mapping's own, or that of an earlier merge
		}
		seen[key.Value] = true
		if !*first {
			w.out.WriteByte(',')
		}
		*first = false
		if err := w.text(key.Value); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(item, depth+1); err != nil {
			return err
		}
	}
	for _, m := range merged {
		for m.Kind == yaml.AliasNode {
			m = m.Alias
		}
		from := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			from = m.Content
		}
		for _, f := range from {
			for f.Kind == yaml.AliasNode {
				f = f.Alias
			}
			if f.Kind != yaml.MappingNode {
				return problem.New(problem.Invalid, "line %d merges what is not a mapping", f.Line)
			}
			if w.nodes++; w.nodes > maxNodes {
				return problem.New(problem.TooLarge, "it has more than %d values when its aliases are written out", maxNodes)
			}
			if err := w.mapping(f, depth+1, seen, first); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *yamlWriter) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.out.WriteString("null")
		return nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return problem.Wrap(err, problem.Invalid, "the value at line %d cannot be read", n.Line)
		}
		if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
			return problem.New(problem.Invalid, "the number at line %d is not one in JSON", n.Line)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return problem.Wrap(err, problem.Invalid, "the value at line %d cannot be read", n.Line)
		}
		w.out.Write(raw)
		return nil
	}
	return w.text(n.Value) // dates too: a document means their text
}

func (w *yamlWriter) text(s string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "a text cannot be written as JSON")
	}
	w.out.Write(raw)
	return nil
}
