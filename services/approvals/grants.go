package approvals

import (
	"regexp"
	"slices"
	"time"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of a grant.
const (
	maxQuorum = 10
	maxLimit  = 1_000_000_000
	maxListOf = 100 // methods, effects or repositories
)

var (
	toolGlob   = regexp.MustCompile(`^[a-z0-9*-]{1,64}\.[A-Za-z0-9_*-]{1,64}$`)
	repoGlob   = regexp.MustCompile(`^[A-Za-z0-9*-]{1,39}/[A-Za-z0-9._*-]{1,100}$`)
	methodName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	effects    = []connection.Effect{connection.Pure, connection.Keyed, connection.Probeable, connection.Opaque}
	rules      = []grant.Approval{grant.Never, grant.Always, grant.FirstPerRun, grant.When}
)

// checkGrant says what is wrong with a grant, before it is made: what the broker cannot use, it would refuse calls for.
func checkGrant(g grant.Created, now time.Time) error {
	invalid := func(format string, args ...any) error { return problem.New(problem.Invalid, format, args...) }
	denies := g.Verdict == grant.Deny
	switch {
	case !valid[id.Grant](g.Grant) || !valid[id.Agent](g.Agent):
		return invalid("a grant needs its own id and an agent's")
	case g.Verdict != "" && g.Verdict != grant.Allow && !denies:
		return invalid("verdict %.40q is not allow or deny", g.Verdict)
	case !toolGlob.MatchString(g.Selector.Tool):
		return invalid("tool %.80q is not connection.tool, with * for any run of characters", g.Selector.Tool)
	case denies && (g.Approval != "" && g.Approval != grant.Never || g.Limits != (grant.Limits{}) || g.Quorum != 0 || g.Approver != ""):
		return invalid("a grant that denies has no approval rule and no limits")
	case !denies && !slices.Contains(rules, g.Approval):
		return invalid("approval %.40q is not never, always, first_per_run or when", g.Approval)
	case (g.Approval == grant.When) != (g.ApproveWhen != ""):
		return invalid("approve_when goes with approval when, and only with it")
	case g.Quorum < 0 || g.Quorum > maxQuorum:
		return invalid("quorum %d is outside [0, %d]", g.Quorum, maxQuorum)
	case g.Approver != "" && (!g.Approver.Valid() || !g.Approver.MayApprove()):
		return invalid("approver %.40q is not a role that may approve", g.Approver)
	case !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(now):
		return invalid("the grant would have expired already")
	case len(g.Selector.Methods) > maxListOf || len(g.Selector.Effects) > maxListOf || len(g.Selector.Repos) > maxListOf:
		return invalid("a selector lists at most %d of a kind", maxListOf)
	}
	for _, limit := range []int{g.Limits.Calls, g.Limits.PerRun, g.Limits.PerMinute} {
		if limit < 0 || limit > maxLimit {
			return invalid("limit %d is outside [0, %d]", limit, maxLimit)
		}
	}
	for _, r := range g.Selector.Repos {
		if !repoGlob.MatchString(r) {
			return invalid("repository %.120q is not owner/name", r)
		}
	}
	for _, m := range g.Selector.Methods {
		if !methodName.MatchString(m) {
			return invalid("method %.80q is not a name", m)
		}
	}
	for _, e := range g.Selector.Effects {
		if !slices.Contains(effects, e) {
			return invalid("effect %.40q is not pure, keyed, probeable or opaque", e)
		}
	}
	for _, text := range []string{g.Condition, g.ApproveWhen} {
		if text == "" {
			continue
		}
		if _, err := condition.Parse(text); err != nil {
			return err
		}
	}
	return nil
}
