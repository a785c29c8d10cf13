package apipackage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Change is what a new version of a package does to one tool, for people.
type Change struct {
	Kind  ChangeKind `json:"kind"`
	Tool  string     `json:"tool"`
	Route string     `json:"route"`
	Words []string   `json:"words,omitempty"` // what changed
}

// ChangeKind is the sort of a change.
type ChangeKind string

// The changes. No grant names an added operation yet.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Diff says what is different in a new package. A change of the package as a whole has no tool.
func Diff(old, new *Package) []Change {
	var out []Change
	if words := packageWords(old, new); len(words) > 0 {
		out = append(out, Change{Kind: Changed, Words: words})
	}
	before := map[string]*Operation{}
	for i := range old.Operations {
		before[old.Operations[i].Key()] = &old.Operations[i]
	}
	for i := range new.Operations {
		now := &new.Operations[i]
		was, ok := before[now.Key()]
		if !ok {
			out = append(out, Change{Kind: Added, Tool: now.Tool, Route: now.Route(), Words: []string{risk(now)}})
			continue
		}
		delete(before, now.Key())
		if words := operationWords(old, new, was, now); len(words) > 0 {
			out = append(out, Change{Kind: Changed, Tool: now.Tool, Route: now.Route(), Words: words})
		}
	}
	for _, gone := range before {
		out = append(out, Change{Kind: Removed, Tool: gone.Tool, Route: gone.Route()})
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Tool, b.Tool), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	return out
}

// changes collects what changed, in words.
type changes []string

func (c *changes) of(what string, old, new any) {
	if a, b := fmt.Sprint(old), fmt.Sprint(new); a != b {
		*c = append(*c, fmt.Sprintf("%s: %s -> %s", what, cmp.Or(a, "none"), cmp.Or(b, "none")))
	}
}

func packageWords(old, new *Package) []string {
	var c changes
	c.of("base_url", old.BaseURL, new.BaseURL)
	c.of("auth", strings.TrimSpace(string(old.Auth.Kind)+" "+old.Auth.Name), strings.TrimSpace(string(new.Auth.Kind)+" "+new.Auth.Name))
	c.of("idempotency_header", old.IdempotencyHeader, new.IdempotencyHeader)
	return c
}

func risk(o *Operation) string {
	if o.Writes {
		return "writes, " + string(o.Effect)
	}
	return "reads, " + string(o.Effect)
}

func operationWords(oldPkg, newPkg *Package, old, new *Operation) []string {
	var c changes
	c.of("tool", old.Tool, new.Tool)
	c.of("operationId", old.ID, new.ID)
	c.of("effect", risk(old), risk(new))
	c.of("probe", old.Probe, new.Probe)
	c.of("description", old.Description, new.Description)
	c.of("body", bodyWord(old.Body), bodyWord(new.Body))
	for _, arg := range sortedKeys(old.Input.Properties) {
		if new.Input.Properties[arg] == nil {
			c = append(c, "argument "+arg+" is gone")
		}
	}
	for _, arg := range sortedKeys(new.Input.Properties) {
		now, was := new.Input.Properties[arg], old.Input.Properties[arg]
		must := slices.Contains(new.Input.Required, arg)
		if was == nil {
			c = append(c, "argument "+arg+" is new"+map[bool]string{true: ", and required"}[must])
			continue
		}
		if before := slices.Contains(old.Input.Required, arg); before != must {
			c = append(c, "argument "+arg+" is now "+map[bool]string{true: "required", false: "optional"}[must])
		}
		c.of("argument "+arg+" goes to", target(old, arg), target(new, arg))
		c.schema("argument "+arg, oldPkg, newPkg, was, now)
	}
	return c
}

// schema says what of an argument is different, and only that something inside it is where it goes deeper.
func (c *changes) schema(what string, oldPkg, newPkg *Package, old, new *Schema) {
	had := len(*c)
	a, b := shape{oldPkg.Definitions}.settle(old), shape{newPkg.Definitions}.settle(new)
	if a == nil || b == nil {
		return
	}
	c.of(what+", type", strings.Join(a.Type, " or "), strings.Join(b.Type, " or "))
	c.of(what+", values", raws(a.Enum), raws(b.Enum))
	c.of(what+", default", string(a.Default), string(b.Default))
	c.of(what+", format", a.Format, b.Format)
	c.of(what+", required inside", strings.Join(a.Required, " "), strings.Join(b.Required, " "))
	for _, name := range sortedKeys(a.Properties) {
		if b.Properties[name] == nil {
			*c = append(*c, what+"."+name+" is gone")
		}
	}
	for _, name := range sortedKeys(b.Properties) {
		if a.Properties[name] == nil {
			*c = append(*c, what+"."+name+" is new")
		}
	}
	if len(*c) == had && !bytes.Equal(oldPkg.closure(old), newPkg.closure(new)) {
		*c = append(*c, what+" is different inside")
	}
}

// closure is all that a schema says, with the definitions that it refers to, as text to compare.
func (p *Package) closure(s *Schema) []byte {
	raw, err := json.Marshal(p.inputOf(&Operation{Input: s, View: View{Terse: true}}))
	if err != nil {
		return nil // it was read from JSON
	}
	return raw
}

func raws(list []json.RawMessage) string { return string(bytes.Join(rawBytes(list), []byte(" "))) }

func rawBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, r := range list {
		out[i] = r
	}
	return out
}

func bodyWord(b *Body) string {
	if b == nil {
		return ""
	}
	return b.MediaType
}

// target says where an argument goes on the wire.
func target(o *Operation, arg string) string {
	for _, p := range o.Parameters {
		if p.Arg == arg {
			return fmt.Sprintf("%s %s (%s, explode %t)", p.In, p.Name, p.Style, p.Explode)
		}
	}
	if o.Body != nil {
		for _, f := range o.Body.Fields {
			if f.Arg == arg {
				return "body " + f.Name
			}
		}
	}
	return "body"
}
