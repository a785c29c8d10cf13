// Package policy is the pure heart of the broker: a request and what is known, in; a decision with its reason, out.
// Every door asks it: what an agent may see is what it may call.
package policy

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Tool is a callable with the executor that serves it.
type Tool struct {
	connection.Tool
	Full   string // connection.tool
	Route  call.Route
	GitHub bool // has owner and repo arguments that a grant's repos bound
	Folded bool // stands for the other tools of its connection: see connection.Folded
	Method bool // is no tool but a method of an MCP server: see connection.Methods
}

// Grant is an active grant and the control sequence that made it what it is.
type Grant struct {
	grant.Created
	Seq uint64
	At  time.Time // when it was made
}

// Known is what the decision may rest on, all from one moment of the control stream.
type Known struct {
	Agent  *agent.Defined // nil: no such agent
	Tool   *Tool          // nil: no such tool
	Grants []Grant        // the agent's active grants, those that deny included
	Behind []Tool         // what Tool stands for, when it is folded
}

// Request is one call to decide.
type Request struct {
	Run      id.Run
	Args     json.RawMessage // canonical
	Input    json.RawMessage // the same: an MCP client's answers to its server; empty: none
	Tainted  bool
	NotAfter time.Time
	Approved string // the digest that members approved, "" before anybody was asked
	// Before names the grants under which this run's calls were approved before, for the rule first_per_run.
	Before func(id.Grant) bool
	// Passed says whether members approved, for the rest of this run, calls of a scope.
	Passed func(scope string) bool

	lends bool // a machine's tool is asked for, and this is what a connection lends to it
}

// Conditions gives checked conditions by their text.
type Conditions interface {
	Parse(text string) (*condition.Condition, error)
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
	Grant   *Grant // the grant that it rests on; nil when none is about the call
	Digest  string // of what a person would approve
	Asked   bool   // admitted because members approved it, and not without
	Code    problem.Code
	Reason  string

	Lent  *Grant   // the grant on the connection that lends to the call; nil when none does, or no grant allows it
	asked []*Grant // those that ask people
}

// Rule is what the grants that ask people ask of them: all of what each does.
func (d Decision) Rule() (quorum int, approver member.Role, fourEyes bool, escalateAfter int) {
	for _, g := range d.asked {
		quorum = max(quorum, g.Quorum)
		fourEyes = fourEyes || g.FourEyes
		if g.EscalateAfter > 0 && (escalateAfter == 0 || g.EscalateAfter < escalateAfter) {
			escalateAfter = g.EscalateAfter
		}
		if g.Approver != "" && (approver == "" || g.Approver.AtLeast(approver)) {
			approver = g.Approver
		}
	}
	return quorum, approver, fourEyes, escalateAfter
}

// LentID is the id of the grant on the connection that lends to the call, "" when there is none.
func (d Decision) LentID() id.Grant {
	if d.Lent == nil {
		return ""
	}
	return d.Lent.Created.Grant
}

// GrantID is the id of the grant that the decision rests on, "" when there is none.
func (d Decision) GrantID() id.Grant {
	if d.Grant == nil {
		return ""
	}
	return d.Grant.Created.Grant
}

// Decide decides one call at a moment. A grant that denies wins over all that allow. Of those that allow the call it
// takes the one that asks least of people; a call that none allows is refused.
func Decide(k Known, r Request, conditions Conditions, now time.Time) Decision {
	switch {
	case !r.NotAfter.IsZero() && now.After(r.NotAfter):
		return refuse(problem.Expired, "the request is older than its caller would wait for")
	case k.Agent == nil || k.Agent.Removed:
		return refuse(problem.Denied, "there is no such agent")
	case k.Tool == nil:
		return refuse(problem.NotFound, "there is no such tool")
	case k.Tool.Route == call.Script && !k.Agent.Runtime.Enabled:
		return refuse(problem.Denied, "the agent's runtime is off")
	case k.Tool.Lent && !r.lends:
		return refuse(problem.Invalid, k.Tool.Full+" is done by a machine's git tools with the connection's credential, and not by itself")
	}
	if k.Tool.Folded {
		return folded(k, r.Run, now)
	}
	c := considered{Known: k, Request: r, conditions: conditions, now: now}
	best := refuse(problem.Denied, "no active grant of this agent selects the tool")
	for _, g := range k.Grants {
		if !Selects(g, *k.Tool, r.Run, now) {
			continue
		}
		d := c.under(g)
		if g.Verdict == grant.Deny {
			if d.Verdict == Refuse {
				return d
			}
			continue
		}
		if d.Verdict > best.Verdict || d.Verdict == Refuse && best.Verdict == Refuse && best.Grant == nil {
			best = d
		}
	}
	if best.Verdict == Hold && r.Approved != "" {
		// People approved something, and it is not this any more: the grant, the tool or its schema changed.
		return Decision{Verdict: Refuse, Grant: best.Grant, Code: problem.Conflict,
			Reason: "what was approved is not what would run now; ask again"}
	}
	return best
}

// folded decides on a tool that stands for others. It tells of them and does nothing else, so whoever may call one of
// them may ask, under the grant that allows it, and without using any of its limits.
func folded(k Known, run id.Run, now time.Time) Decision {
	if k.Tool.Name == connection.CallOperation {
		return refuse(problem.Invalid, connection.CallOperation+" has to name an operation and its arguments")
	}
	for _, t := range k.Behind {
		if !Visible(Known{Agent: k.Agent, Tool: &t, Grants: k.Grants}, run, now) {
			continue
		}
		for _, g := range k.Grants {
			if g.Verdict != grant.Deny && Selects(g, t, run, now) {
				return Decision{Verdict: Admit, Grant: &g, Reason: "granted: " + t.Full + " is among what it tells of"}
			}
		}
	}
	return refuse(problem.Denied, "no active grant of this agent selects any tool of the connection")
}

// considered is one call while its grants are looked at.
type considered struct {
	Known
	Request
	conditions Conditions
	now        time.Time
}

// under decides by one grant that selects the tool. A denying grant refuses the calls that it is about, and those of
// which that cannot be told.
func (c considered) under(g Grant) Decision {
	outside := outOfBounds(g, *c.Tool, c.Args)
	holds, err := c.holds(g.Condition)
	if g.Verdict == grant.Deny {
		if outside != "" || err == nil && !holds {
			return Decision{Verdict: Admit}
		}
		d := refuse(problem.Denied, "grant "+id.Name(g.Created.Grant)+" denies it")
		d.Grant = &g
		return d
	}
	d := Decision{Verdict: Refuse, Grant: &g, Code: problem.Denied}
	switch {
	case g.Verdict != "" && g.Verdict != grant.Allow:
		d.Reason = "the grant's verdict is not one that this broker knows"
	case outside != "":
		d.Reason = outside
	case err != nil:
		d.Reason = problem.DetailOf(err).Message
	case !holds:
		d.Reason = "the grant's condition does not hold: " + g.Condition
	default:
		d = Decision{Verdict: Admit, Grant: &g, Digest: Digest(g, *c.Tool, c.Args, c.Input), Reason: "granted", asked: []*Grant{&g}}
		if reason := c.wants(g); reason != "" {
			switch {
			case c.Approved == d.Digest:
				d.Asked, d.Reason = true, "approved"
			case c.passed(g):
				d.Reason = "approved for this run"
			default:
				d.Verdict, d.Reason = Hold, reason
			}
		}
	}
	return d
}

// holds evaluates a condition, which is the same for every grant that has it.
func (c considered) holds(text string) (bool, error) {
	if text == "" {
		return true, nil
	}
	parsed, err := c.conditions.Parse(text)
	if err != nil {
		return false, err
	}
	return parsed.Holds(condition.Call{Agent: id.Name(c.Agent.Agent), Tool: c.Tool.Full, Run: string(c.Run), Args: c.Args, Input: c.Input, Tainted: c.Tainted, Now: c.now})
}

// wants says why a person has to approve, "" when nobody has to. It says all of why: an approval for the rest of the
// run counts for what the person was told.
func (c considered) wants(g Grant) string {
	var why []string
	switch g.Approval {
	case grant.Always:
		why = append(why, "the grant holds every call for approval")
	case grant.FirstPerRun:
		if c.Before == nil || !c.Before(g.Created.Grant) {
			why = append(why, "the grant holds the first call of each run for approval")
		}
	case grant.When:
		if holds, err := c.holds(g.ApproveWhen); holds || err != nil {
			why = append(why, "the grant holds such calls for approval: "+g.ApproveWhen)
		}
	case grant.Never:
	default:
		why = append(why, "the grant's approval rule is not one that this broker knows")
	}
	if c.Tool.ChangedAt.After(g.At) {
		why = append(why, "the provider describes the tool otherwise than when it was granted; make the grant again if that is well")
	}
	if taintHolds(g, *c.Tool, c.Tainted) {
		why = append(why, "the run has read content that nobody vouches for, and this tool writes")
	}
	return strings.Join(why, "; ")
}

func taintHolds(g Grant, t Tool, tainted bool) bool { return t.Writes && tainted && !g.Tainted }

// taintTells says whether a run's taint is, or may be, part of why a person has to approve. A rule that names it may ask
// for it: there is no other way for a condition to know.
func taintTells(g Grant, t Tool, tainted bool) bool {
	return taintHolds(g, t, tainted) || tainted && g.Approval == grant.When && strings.Contains(g.ApproveWhen, "tainted")
}

// passed says whether members approved such calls for the rest of the run. What was approved of a tainted run's call
// covers an untainted one; never the other way round: who approved before the run read anything was not told of it.
func (c considered) passed(g Grant) bool {
	if c.Passed == nil {
		return false
	}
	return c.Passed(Scope(g, *c.Tool, c.Args, true)) ||
		!taintTells(g, *c.Tool, c.Tainted) && c.Passed(Scope(g, *c.Tool, c.Args, false))
}

// Scope is what an approval for the rest of the run is about: calls of this tool as the provider describes it now, with
// this method and repository, under this very state of the grant. The grant's conditions, bounds and limits are not part
// of it: they are looked at again for each call.
func Scope(g Grant, t Tool, args json.RawMessage, tainted bool) string {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(args, &all) // canonical arguments are an object
	repo := ""
	if t.GitHub {
		repo = strings.ToLower(text(args, "owner") + "/" + text(args, "repo"))
	}
	return permit.Digest([]byte("for the run"), []byte(t.Full), t.Schema, []byte(t.ChangedAt.UTC().Format(time.RFC3339Nano)), []byte(g.Created.Grant), sequence(g),
		all["method"], []byte(repo), []byte(strconv.FormatBool(taintTells(g, t, tainted))))
}

// Visible says whether the agent may call the tool with some arguments.
func Visible(k Known, run id.Run, now time.Time) bool {
	if k.Agent == nil || k.Agent.Removed || k.Tool == nil || k.Tool.Route == call.Script && !k.Agent.Runtime.Enabled {
		return false
	}
	if k.Tool.Folded {
		return slices.ContainsFunc(k.Behind, func(t Tool) bool { return Visible(Known{Agent: k.Agent, Tool: &t, Grants: k.Grants}, run, now) })
	}
	if k.Tool.Lent {
		return false // by itself
	}
	visible := false
	for _, g := range k.Grants {
		switch {
		case !Selects(g, *k.Tool, run, now):
		case g.Verdict != grant.Deny:
			visible = true
		case g.Condition == "" && len(g.Selector.Methods) == 0 && len(g.Selector.Repos) == 0 && len(g.Selector.URIs) == 0:
			return false // denied whatever its arguments
		}
	}
	return visible
}

// Selects says whether a grant is about the tool, in this run, now.
func Selects(g Grant, t Tool, run id.Run, now time.Time) bool {
	return (g.ExpiresAt.IsZero() || now.Before(g.ExpiresAt)) && (g.Run == "" || g.Run == run) && Match(g.Selector.Tool, t.Full) &&
		(t.Name != connection.Sample || !t.Method || g.Selector.Tool == t.Full) &&
		(len(g.Selector.Effects) == 0 || slices.Contains(g.Selector.Effects, t.Effect))
}

// outOfBounds says why arguments leave the grant's selector, "" when they do not.
func outOfBounds(g Grant, t Tool, args json.RawMessage) string {
	if len(g.Selector.Methods) > 0 {
		if method := text(args, "method"); !slices.Contains(g.Selector.Methods, method) {
			return "the grant does not include method " + clip(method, 60)
		}
	}
	if len(g.Selector.URIs) > 0 {
		if uri := text(args, "uri"); !slices.ContainsFunc(g.Selector.URIs, func(glob string) bool { return match(glob, uri, '/') }) {
			return "the grant does not include the URI " + clip(uri, 200)
		}
	}
	if !t.GitHub || g.Verdict == grant.Deny && len(g.Selector.Repos) == 0 {
		return ""
	}
	owner, name := text(args, "owner"), text(args, "repo")
	if owner == "" || name == "" {
		return "owner and repo have to be given, as text"
	}
	repo := owner + "/" + name
	for _, allowed := range g.Selector.Repos {
		if MatchRepo(allowed, repo) {
			return ""
		}
	}
	return "the grant does not include repository " + clip(repo, 100)
}

// text is an argument that is text, "" when it is not. Its name counts to the letter: a reader that took "Method" for
// "method" would decide about another call than the one that is made.
func text(args json.RawMessage, name string) string {
	var all map[string]json.RawMessage
	var value string
	if json.Unmarshal(args, &all) != nil || json.Unmarshal(all[name], &value) != nil {
		return ""
	}
	return value
}

// Digest binds an approval to tool, arguments, what answers come with them, tool schema and the very state of the grant.
func Digest(g Grant, t Tool, args, input json.RawMessage) string {
	parts := [][]byte{[]byte(t.Full), args, t.Schema, []byte(g.Created.Grant), sequence(g)}
	if len(input) > 0 {
		parts = append(parts, input)
	}
	return permit.Digest(parts...)
}

func sequence(g Grant) []byte { return binary.BigEndian.AppendUint64(nil, g.Seq) }

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
