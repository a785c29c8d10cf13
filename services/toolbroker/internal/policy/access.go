package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// Rule is what one grant says of one tool, in words.
type Rule struct {
	Grant   id.Grant
	Verdict grant.Verdict
	Text    string
}

// Reach is what an agent could do with a tool.
type Reach struct {
	Word  string // "allowed", "held", "depends" on the call, "denied"
	Why   string
	Rules []Rule
}

// Explain says, before any call, what an agent could do with a tool. It is Decide without the arguments: what depends
// on them is said to depend.
func Explain(k Known, run id.Run, now time.Time) Reach {
	switch {
	case k.Agent == nil || k.Agent.Removed:
		return Reach{Word: "denied", Why: "there is no such agent"}
	case k.Tool.Route == call.Script && !k.Agent.Runtime.Enabled:
		return Reach{Word: "denied", Why: "the agent's runtime is off"}
	}
	r := Reach{Word: "denied", Why: "no active grant of this agent selects the tool"}
	rank := map[string]int{"denied": 0, "depends": 1, "held": 2, "allowed": 3}
	maybeDenied := false
	for _, g := range k.Grants {
		if !Selects(g, *k.Tool, run, now) {
			continue
		}
		word, text := describe(g, *k.Tool)
		r.Rules = append(r.Rules, Rule{g.Created.Grant, verdictOf(g), text})
		switch {
		case verdictOf(g) == grant.Allow:
			if rank[word] > rank[r.Word] {
				r.Word, r.Why = word, "grant "+id.Name(g.Created.Grant)
			}
		case word == "denied":
			return Reach{Word: "denied", Why: "grant " + id.Name(g.Created.Grant) + " denies it", Rules: r.Rules}
		default:
			maybeDenied = true
		}
	}
	if maybeDenied && r.Word != "denied" {
		r.Word, r.Why = "depends", "some calls are denied"
	}
	return r
}

func verdictOf(g Grant) grant.Verdict {
	if g.Verdict == grant.Deny {
		return grant.Deny
	}
	return grant.Allow
}

// describe says what a grant means for a tool: a word, and a sentence for people.
func describe(g Grant, t Tool) (word, text string) {
	var bounds []string
	if g.Condition != "" {
		bounds = append(bounds, "if "+g.Condition)
	}
	if len(g.Selector.Methods) > 0 {
		bounds = append(bounds, "for methods "+strings.Join(g.Selector.Methods, ", "))
	}
	if t.GitHub && len(g.Selector.Repos) > 0 {
		bounds = append(bounds, "in "+strings.Join(g.Selector.Repos, ", "))
	}
	if g.Verdict == grant.Deny {
		if len(bounds) == 0 {
			return "denied", "denies every call"
		}
		return "depends", "denies calls " + strings.Join(bounds, ", ")
	}
	if t.GitHub && len(g.Selector.Repos) == 0 {
		return "denied", "names no repository"
	}
	switch g.Approval {
	case grant.Never:
		word, text = "allowed", "allows calls"
	case grant.FirstPerRun:
		word, text = "held", "holds the first call of each run for approval"
	case grant.When:
		word, text = "depends", "holds calls for approval when "+g.ApproveWhen
	default:
		word, text = "held", "holds every call for approval"
	}
	if word == "allowed" && t.ChangedAt.After(g.At) {
		word, text = "held", "holds calls: the provider describes the tool otherwise than when it was granted"
	}
	if word == "allowed" && t.Writes && !g.Tainted {
		text += ", and holds them once the run has read content that nobody vouches for"
		word = "depends"
	}
	if g.Condition != "" || len(g.Selector.Methods) > 0 {
		word = "depends"
	}
	if g.Quorum > 1 {
		bounds = append(bounds, fmt.Sprintf("by %d members", g.Quorum))
	}
	if g.EscalateAfter > 0 {
		bounds = append(bounds, fmt.Sprintf("escalated after %s", time.Duration(g.EscalateAfter)*time.Second))
	}
	if g.FourEyes {
		bounds = append(bounds, "by somebody else than who asked")
	}
	for _, l := range []struct {
		n    int
		what string
	}{{g.Limits.Calls, "in all"}, {g.Limits.PerRun, "a run"}, {g.Limits.PerMinute, "a minute"}, {g.Limits.AtOnce, "at once"}} {
		if l.n > 0 {
			bounds = append(bounds, fmt.Sprintf("at most %d %s", l.n, l.what))
		}
	}
	if !g.ExpiresAt.IsZero() {
		bounds = append(bounds, "until "+g.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if len(bounds) > 0 {
		text += ": " + strings.Join(bounds, ", ")
	}
	return word, text
}
