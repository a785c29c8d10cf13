// Package grantcheck says what is wrong with a grant, wherever one is about to be made: in a file, and where it is
// recorded.
package grantcheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of a grant.
const (
	maxQuorum   = 10
	maxLimit    = 1_000_000_000
	maxEscalate = 14 * 24 * 60 * 60 // seconds
	maxListOf   = 100               // methods, effects, repositories or URIs
)

var (
	toolGlob   = regexp.MustCompile(`^[a-z0-9*-]{1,64}\.[A-Za-z0-9_*-]{1,64}$`)
	repoGlob   = regexp.MustCompile(`^[A-Za-z0-9*-]{1,39}/[A-Za-z0-9._*-]{1,100}$`)
	methodName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	effects    = []connection.Effect{connection.Pure, connection.Keyed, connection.Probeable, connection.Opaque}
	rules      = []grant.Approval{grant.Never, grant.Always, grant.FirstPerRun, grant.When}
)

// Fault is one thing that is wrong, and the field that it is about, as files and the API name it.
type Fault struct {
	Field   string
	Message string
}

// Check gives the first fault as a problem of code invalid, nil when there is none.
func Check(g grant.Created, now time.Time) error {
	if faults := Faults(g, now); len(faults) > 0 {
		return problem.New(problem.Invalid, "%s", faults[0].Message)
	}
	return nil
}

// Faults says what is wrong with a grant: what the broker cannot use, it would refuse calls for.
func Faults(g grant.Created, now time.Time) (faults []Fault) {
	fault := func(field, format string, args ...any) {
		faults = append(faults, Fault{field, fmt.Sprintf(format, args...)})
	}
	denies := g.Verdict == grant.Deny
	if !valid[id.Grant](g.Grant) || !valid[id.Agent](g.Agent) {
		fault("grant", "a grant needs its own id and an agent's")
	}
	if g.Verdict != "" && g.Verdict != grant.Allow && !denies {
		fault("verdict", "verdict %.40q is not allow or deny", g.Verdict)
	}
	if denies && (g.Approval != "" && g.Approval != grant.Never || g.Limits != (grant.Limits{}) || g.Quorum != 0 || g.Approver != "" || g.FourEyes || g.EscalateAfter != 0) {
		fault("verdict", "a grant that denies has no approval rule and no limits")
	}
	if !denies && !slices.Contains(rules, g.Approval) {
		fault("approval", "approval %.40q is not never, always, first_per_run or when", g.Approval)
	}
	if (g.Approval == grant.When) != (g.ApproveWhen != "") {
		fault("approve_when", "approve_when goes with approval when, and only with it")
	}
	if g.Quorum < 0 || g.Quorum > maxQuorum {
		fault("quorum", "quorum %d is outside [0, %d]", g.Quorum, maxQuorum)
	}
	if g.EscalateAfter < 0 || g.EscalateAfter > maxEscalate {
		fault("escalate_after", "escalate_after of %d s is outside [0, %d]", g.EscalateAfter, maxEscalate)
	}
	if g.Approver != "" && (!g.Approver.Valid() || !g.Approver.MayApprove()) {
		fault("approver", "approver %.40q is not a role that may approve", g.Approver)
	}
	if !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(now) {
		fault("expires_at", "the grant would have expired already")
	}
	for _, l := range []struct {
		field   string
		n, most int
	}{{"calls", g.Limits.Calls, maxLimit}, {"per_run", g.Limits.PerRun, maxLimit}, {"per_minute", g.Limits.PerMinute, maxLimit}, {"at_once", g.Limits.AtOnce, grant.MaxAtOnce}} {
		if l.n < 0 || l.n > l.most {
			fault("limits", "limit %s of %d is outside [0, %d]", l.field, l.n, l.most)
		}
	}
	for field, text := range map[string]string{"condition": g.Condition, "approve_when": g.ApproveWhen} {
		if text == "" {
			continue
		}
		if _, err := condition.Parse(text); err != nil {
			fault(field, "%s", problem.DetailOf(err).Message)
		}
	}
	return append(faults, selectorFaults(g.Selector)...)
}

// maxURI is the longest glob over URIs, in bytes.
const maxURI = 500

func selectorFaults(s grant.Selector) (faults []Fault) {
	fault := func(field, format string, args ...any) {
		faults = append(faults, Fault{field, fmt.Sprintf(format, args...)})
	}
	if con, method, _ := strings.Cut(s.Tool, "."); !toolGlob.MatchString(s.Tool) && !(connection.Method(method) && toolGlob.MatchString(con+".x")) {
		fault("tool", "tool %.80q is not connection.tool, with * for any run of characters", s.Tool)
	}
	for field, n := range map[string]int{"methods": len(s.Methods), "effects": len(s.Effects), "repos": len(s.Repos), "uris": len(s.URIs)} {
		if n > maxListOf {
			fault(field, "%s lists more than %d", field, maxListOf)
		}
	}
	for _, r := range s.Repos {
		if !repoGlob.MatchString(r) {
			fault("repos", "repository %.120q is not owner/name", r)
		}
	}
	for _, u := range s.URIs {
		if u == "" || len(u) > maxURI || !utf8.ValidString(u) {
			fault("uris", "a URI has 1 to %d bytes, with * for any run of characters but '/'", maxURI)
		}
	}
	for _, m := range s.Methods {
		if !methodName.MatchString(m) {
			fault("methods", "method %.80q is not a name", m)
		}
	}
	for _, e := range s.Effects {
		if !slices.Contains(effects, e) {
			fault("effects", "effect %.40q is not pure, keyed, probeable or opaque", e)
		}
	}
	return faults
}

func valid[T id.ID](t T) bool {
	_, err := id.Parse[T](string(t))
	return err == nil
}
