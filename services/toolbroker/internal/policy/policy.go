// Package policy is the pure heart of the broker: a request and what is known, in; a decision with its reason, out.
// Every door asks it: what an agent may see is what it may call.
package policy

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// Tool is a callable with the executor that serves it.
type Tool struct {
	connection.Tool
	Full   string // connection.tool
	Route  call.Route
	GitHub bool // has owner and repo arguments that a grant's repos bound
}

// Grant is an active grant and the control sequence that made it what it is.
type Grant struct {
	grant.Created
	Seq uint64
}

// Known is what the decision may rest on, all from one moment of the control stream.
type Known struct {
	Agent  *agent.Defined // nil: no such agent
	Tool   *Tool          // nil: no such tool
	Grants []Grant        // the agent's active grants
}

// Request is one call to decide.
type Request struct {
	Run      id.Run
	Args     json.RawMessage // canonical
	Tainted  bool
	NotAfter time.Time
	Approved string // the digest that a member approved, "" before anybody was asked
}

// Verdict is what happens to the call.
type Verdict int

// The verdicts.
const (
	Refuse Verdict = iota
	Hold
	Admit
)

// Decision is a verdict and why.
type Decision struct {
	Verdict Verdict
	Grant   id.Grant
	Digest  string // of what a person would approve
	Code    problem.Code
	Reason  string
}

// Decide decides one call at a moment. Of the grants that select the call it takes the one that asks least of
// people; a call that none selects is refused.
func Decide(k Known, r Request, now time.Time) Decision {
	switch {
	case !r.NotAfter.IsZero() && now.After(r.NotAfter):
		return refuse(problem.Expired, "the request is older than its caller would wait for")
	case k.Agent == nil || k.Agent.Removed:
		return refuse(problem.Denied, "there is no such agent")
	case k.Tool == nil:
		return refuse(problem.NotFound, "there is no such tool")
	case k.Tool.Route == call.Script && !k.Agent.Runtime.Enabled:
		return refuse(problem.Denied, "the agent's runtime is off")
	}
	best := refuse(problem.Denied, "no active grant of this agent selects the tool")
	for _, g := range k.Grants {
		if !Selects(g, *k.Tool, r.Run, now) {
			continue
		}
		if reason := outOfBounds(g, *k.Tool, r.Args); reason != "" {
			if best.Verdict == Refuse {
				best = refuse(problem.Denied, reason)
				best.Grant = g.Grant
			}
			continue
		}
		d := Decision{Grant: g.Grant, Digest: Digest(g, *k.Tool, r.Args), Verdict: Admit, Reason: "granted"}
		if reason := wants(g, *k.Tool, r.Tainted); reason != "" {
			if r.Approved == d.Digest {
				d.Reason = "approved"
			} else {
				d.Verdict, d.Reason = Hold, reason
			}
		}
		if d.Verdict > best.Verdict {
			best = d
		}
	}
	if best.Verdict == Hold && r.Approved != "" {
		// A person approved something, and it is not this any more: the grant, the tool or its schema changed.
		return Decision{Verdict: Refuse, Grant: best.Grant, Code: problem.Conflict,
			Reason: "what was approved is not what would run now; ask again"}
	}
	return best
}

// Visible says whether the agent may call the tool with some arguments.
func Visible(k Known, run id.Run, now time.Time) bool {
	if k.Agent == nil || k.Agent.Removed || k.Tool == nil || k.Tool.Route == call.Script && !k.Agent.Runtime.Enabled {
		return false
	}
	for _, g := range k.Grants {
		if Selects(g, *k.Tool, run, now) {
			return true
		}
	}
	return false
}

// Selects says whether a grant is about the tool, in this run, now.
func Selects(g Grant, t Tool, run id.Run, now time.Time) bool {
	return (g.ExpiresAt.IsZero() || now.Before(g.ExpiresAt)) && (g.Run == "" || g.Run == run) && Match(g.Selector.Tool, t.Full)
}

// wants says why a person has to approve, "" when nobody has to.
func wants(g Grant, t Tool, tainted bool) string {
	switch {
	case g.Approval == grant.Always:
		return "the grant holds every call for approval"
	case g.Approval != grant.Never:
		return "the grant's approval rule is not one that this broker knows"
	case t.Writes && tainted && !g.Tainted:
		return "the run has read content that nobody vouches for, and this tool writes"
	}
	return ""
}

// outOfBounds says why arguments leave the grant, "" when they do not.
func outOfBounds(g Grant, t Tool, args json.RawMessage) string {
	if !t.GitHub {
		return ""
	}
	var at struct{ Owner, Repo string }
	if err := json.Unmarshal(args, &at); err != nil {
		return "owner and repo have to be text"
	}
	repo := at.Owner + "/" + at.Repo
	for _, allowed := range g.Selector.Repos {
		if MatchRepo(allowed, repo) {
			return ""
		}
	}
	return "the grant does not include repository " + clip(repo, 100)
}

// Digest binds an approval to tool, arguments, tool schema and the very state of the grant.
func Digest(g Grant, t Tool, args json.RawMessage) string {
	seq := []byte{byte(g.Seq >> 56), byte(g.Seq >> 48), byte(g.Seq >> 40), byte(g.Seq >> 32), byte(g.Seq >> 24), byte(g.Seq >> 16), byte(g.Seq >> 8), byte(g.Seq)}
	return permit.Digest([]byte(t.Full), args, t.Schema, []byte(g.Grant), seq)
}

// Match says whether a tool's full name matches a glob, in which '*' stands for any run of characters but '.'.
func Match(glob, name string) bool {
	return match(glob, name, '.')
}

// MatchRepo says whether "owner/name" matches, in which '*' stands for any run of characters but '/'. GitHub compares
// names without case.
func MatchRepo(glob, repo string) bool {
	return match(strings.ToLower(glob), strings.ToLower(repo), '/')
}

// match compares in one pass with one point to come back to, so that no glob is slow.
func match(glob, text string, stop byte) bool {
	g, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, t
			g++
		case g < len(glob) && glob[g] == text[t]:
			g++
			t++
		case star >= 0 && text[mark] != stop:
			mark++
			g, t = star+1, mark
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

func refuse(code problem.Code, reason string) Decision {
	return Decision{Verdict: Refuse, Code: code, Reason: reason}
}

func clip(s string, n int) string { return s[:min(len(s), n)] }
