package toolbroker

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// Bounds of what a diff shows of a tool.
const (
	maxFields    = 100
	maxFieldText = 4000
	maxDiff      = 512 << 10 // of all tools together
)

// diffConnection shows what changed under grants, so that a person can make them again, or not: per tool, against what
// the provider described when the grant was made.
func (s *Service) diffConnection(ctx context.Context, who rpc.Caller, q ask.DiffConnection) (ask.ConnectionDiff, error) {
	if err := s.view.Current(); err != nil {
		return ask.ConnectionDiff{}, err
	}
	if _, ok := s.state.Connection(who.Tenant, id.Name(q.Connection)); !ok {
		return ask.ConnectionDiff{}, problem.New(problem.NotFound, "there is no connection %s", id.Name(q.Connection))
	}
	var waits []holding
	grants, tools := s.state.Grants(who.Tenant), s.state.ToolsOf(who.Tenant, q.Connection)
	slices.SortFunc(tools, func(a, b policy.Tool) int { return strings.Compare(a.Full, b.Full) })
	for _, t := range tools {
		if t.ChangedAt.IsZero() {
			continue
		}
		for _, g := range grants {
			if t.ChangedAt.After(g.At) && policy.Selects(g, t, g.Run, s.now()) {
				waits = append(waits, holding{tool: t, grant: g})
			}
		}
	}
	out := ask.ConnectionDiff{Tools: []ask.ToolDiff{}}
	if len(waits) == 0 {
		return out, nil
	}
	if err := s.recall(ctx, who.Tenant, q.Connection, waits); err != nil {
		return out, err
	}
	left := maxDiff
	for _, w := range waits {
		d := ask.ToolDiff{Tool: w.tool.Full, ChangedAt: w.tool.ChangedAt, Grants: []id.Grant{w.grant.Created.Grant}, Changes: []ask.FieldChange{}}
		if w.was != nil {
			d.Changes = fieldChanges(*w.was, w.tool.Tool)
		}
		if left -= size(d); left < 0 {
			out.Truncated = true
			break
		}
		// Grants of the same time saw the same.
		if i := slices.IndexFunc(out.Tools, func(o ask.ToolDiff) bool { return o.Tool == d.Tool && slices.Equal(o.Changes, d.Changes) }); i >= 0 {
			out.Tools[i].Grants = append(out.Tools[i].Grants, d.Grants...)
			continue
		}
		out.Tools = append(out.Tools, d)
	}
	return out, nil
}

func size(d ask.ToolDiff) int {
	n := 200
	for _, c := range d.Changes {
		n += len(c.Field) + 2*(len(c.Old)+len(c.New)) // quotes are escaped
	}
	return n
}

// holding is a grant that holds a tool's calls, and the tool as it was when the grant was made.
type holding struct {
	tool  policy.Tool
	grant policy.Grant
	was   *connection.Tool
}

// recall reads what a connection listed, from the beginning on: the last listing before a grant is what it was made for.
func (s *Service) recall(ctx context.Context, tenant id.Tenant, c id.Connection, waits []holding) error {
	filter := schemas.SubjectOf(tenant, connection.Listed{}.Kind(), string(c), "").String()
	for e, err := range s.deps.Log.Read(ctx, schemas.Control, filter, 1) {
		if err != nil {
			return err
		}
		listed, err := eventlog.Decode[connection.Listed](e)
		if err != nil {
			continue // of a version that is not read any more
		}
		for i := range waits {
			if e.Seq > waits[i].grant.Seq {
				continue
			}
			waits[i].was = nil
			for _, t := range listed.Body.Tools {
				if t.Name == waits[i].tool.Name {
					waits[i].was = &t
				}
			}
		}
	}
	return nil
}

// fieldChanges compares two descriptions of a tool, and their schemas value by value.
func fieldChanges(was, now connection.Tool) []ask.FieldChange {
	before, after := describe(was), describe(now)
	fields := map[string]bool{}
	for f := range before {
		fields[f] = true
	}
	for f := range after {
		fields[f] = true
	}
	out := []ask.FieldChange{}
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if before[f] != after[f] && len(out) < maxFields {
			out = append(out, ask.FieldChange{Field: clipped(f), Old: clipped(before[f]), New: clipped(after[f])})
		}
	}
	return out
}

func clipped(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFieldText)], "")
}

func describe(t connection.Tool) map[string]string {
	out := map[string]string{"description": t.Description, "effect": string(t.Effect), "writes": strconv.FormatBool(t.Writes)}
	flatten("schema", t.Schema, out)
	return out
}

// flatten takes objects apart. A list is one value: its order may mean something.
func flatten(at string, raw json.RawMessage, into map[string]string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || len(object) == 0 {
		into[at] = string(raw)
		return
	}
	for name, value := range object {
		flatten(at+"."+name, value, into)
	}
}
