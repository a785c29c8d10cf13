package command

import (
	"fmt"

	"github.com/execwarden/execwarden/tools/execwarden/internal/manifest"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// applied is what apply tells programs.
type applied struct {
	Steps []*appliedStep `json:"steps"`
	byKey map[manifest.Key]*appliedStep
}

type appliedStep struct {
	Kind   manifest.Kind    `json:"kind"`
	Name   string           `json:"name"`
	Where  string           `json:"where"`
	Action manifest.Action  `json:"action"`
	Fields []manifest.Field `json:"fields,omitempty"`
	Secret bool             `json:"secret"` // one is put
	Done   bool             `json:"done"`
}

func newApplied(plan manifest.Plan) *applied {
	out := &applied{Steps: []*appliedStep{}, byKey: map[manifest.Key]*appliedStep{}}
	for _, s := range plan {
		step := &appliedStep{Kind: s.Kind, Name: s.Name, Where: s.Where.String(), Action: s.Action, Fields: s.Diff, Secret: s.Secret != nil}
		out.Steps = append(out.Steps, step)
		out.byKey[s.Key] = step
	}
	return out
}

func (r *applied) done(s manifest.Step) { r.byKey[s.Key].Done = true }

func (a *app) printPlan(plan manifest.Plan) error { return writePlan(a.printer(), plan) }

// signs begin a step's line.
var signs = map[manifest.Action]struct {
	sign string
	tone render.Tone
}{
	manifest.Create:    {"+", render.Good},
	manifest.Update:    {"~", render.Waits},
	manifest.Restore:   {"!", render.Bad},
	manifest.Put:       {"+", render.Good},
	manifest.Unchanged: {"=", render.Faint},
}

func writePlan(p *render.Printer, plan manifest.Plan) error {
	for _, s := range plan {
		how := signs[s.Action]
		if err := p.Toned("", how.tone, fmt.Sprintf("%s %s %s%s", how.sign, s.Key, s.Action, remark(s))); err != nil {
			return err
		}
		for _, f := range s.Diff {
			if err := p.Toned("    ", render.Plain, fmt.Sprintf("%s: %s -> %s", f.Path, value(f.Old), value(f.New))); err != nil {
				return err
			}
		}
	}
	return nil
}

func remark(s manifest.Step) string {
	text := ""
	if s.Action == manifest.Restore {
		text = ", which was revoked"
		if s.Reason != "" {
			text += " (" + s.Reason + ")"
		}
	}
	if s.Secret != nil {
		text += ", and its secret is put"
	}
	return text
}

func value(raw []byte) string {
	if len(raw) == 0 {
		return "(none)"
	}
	return render.Short(string(raw), 200)
}

func summary(dryRun bool, work int) string {
	switch {
	case work == 0:
		return "nothing to do: everything is as the files say"
	case dryRun:
		return fmt.Sprintf("%d to apply; nothing was done (--dry-run)", work)
	}
	return fmt.Sprintf("%d applied", work)
}
