package manifest

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// Action is what a plan does to a thing.
type Action string

// The actions.
const (
	Create    Action = "create"
	Update    Action = "change"
	Unchanged Action = "unchanged"
	Restore   Action = "restore" // a grant that somebody revoked
	Put       Action = "put"     // a hook: the API does not tell what is there
)

// Step is one thing with what is done to it.
type Step struct {
	Resource
	Action Action
	Diff   []Field
	Reason string // why the grant that is restored was revoked
}

// Sends says whether the step asks the API for something. A secret is always put: the API does not tell whether the
// one that it has is the same.
func (s Step) Sends() bool { return s.Action != Unchanged || s.Secret != nil }

// Plan is what it takes to make a tenant what files ask for.
type Plan []Step

// Work is the steps that ask the API for something.
func (p Plan) Work() (work Plan) {
	for _, s := range p {
		if s.Sends() {
			work = append(work, s)
		}
	}
	return work
}

// Options say what a plan may do.
type Options struct {
	RestoreRevoked bool // bring back grants that somebody revoked
	Now            time.Time
}

// NewPlan compares a set with what the API has. Problems: those of the API; invalid, when the set refers to what is
// neither in it nor there, or does what the options do not let it.
func NewPlan(ctx context.Context, api *client.Client, set Set, o Options) (Plan, error) {
	have, err := look(ctx, api)
	if err != nil {
		return nil, err
	}
	var wrong faults
	wanted := map[Key]bool{}
	for _, r := range set {
		wanted[r.Key] = true
	}
	plan := make(Plan, 0, len(set))
	for _, r := range set {
		for _, ref := range r.refs {
			// Whether a hook is there cannot be asked.
			if _, there := have[ref.to]; !there && !wanted[ref.to] && ref.to.Kind != Hook {
				wrong.add(ref.where, "%s is neither in these files nor there already", ref.to)
			}
		}
		s := step(r, have)
		if s.Action == Restore && !o.RestoreRevoked {
			wrong.add(r.Where, "%s was revoked%s; remove it from the file, or apply with --restore-revoked to bring it back", r.Key, because(s.Reason))
		}
		if g, ok := r.Want.(grant.Created); ok && s.Action != Unchanged && !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(o.Now) {
			wrong.add(r.Where, "%s would have expired already, at %s", r.Key, g.ExpiresAt.Format(time.RFC3339))
		}
		plan = append(plan, s)
	}
	return plan, wrong.err()
}

func step(r Resource, have state) Step {
	s := Step{Resource: r}
	old, there := have[r.Key]
	switch {
	case r.Kind == Hook:
		s.Action = Put
	case !there:
		s.Action = Create
	default:
		s.Diff = diff(old.value, r.Want)
		switch {
		case old.revoked:
			s.Action, s.Reason = Restore, old.reason
		case len(s.Diff) > 0:
			s.Action = Update
		default:
			s.Action = Unchanged
		}
	}
	return s
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
