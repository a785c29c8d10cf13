package policy

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
)

// DecideLent decides a call of a machine's tool for which a connection lends its credential: what the machine does, and
// what is done with the credential, are each decided by the grants on them. Both have to allow it, people are asked when
// either asks, once, and are bound to both; a refusal says which of the two it is.
func DecideLent(here, there Known, r Request, lent json.RawMessage, conditions Conditions, now time.Time) Decision {
	whole := r
	r.Approved, r.Passed = "", nil
	a := Decide(here, r, conditions, now)
	r.lends, r.Args, r.NotAfter = true, lent, time.Time{}
	b := Decide(there, r, conditions, now)
	d := Decision{Verdict: Refuse, Grant: a.Grant, Lent: b.Grant, Code: a.Code, Reason: a.Reason}
	switch {
	case a.Verdict == Refuse:
		d.Reason = named(here, "the machine's tool") + ": " + a.Reason
		return d
	case there.Tool != nil && !there.Tool.Lent:
		d.Code, d.Reason = problem.Invalid, there.Tool.Full+" is nothing that a connection lends to a machine"
		return d
	case b.Verdict == Refuse:
		d.Code, d.Reason = b.Code, named(there, "the connection")+": "+b.Reason
		if b.Code == problem.NotFound {
			d.Reason = "the connection is not there, or is no GitHub connection, and so lends nothing to a machine"
		}
		return d
	}
	d.Code, d.Digest = "", permit.Digest([]byte("lent"), []byte(a.Digest), []byte(b.Digest))
	var why []string
	for _, one := range []struct {
		of   Known
		said Decision
	}{{here, a}, {there, b}} {
		if one.said.Verdict == Hold {
			why = append(why, one.of.Tool.Full+": "+one.said.Reason)
			d.asked = append(d.asked, one.said.Grant)
		}
	}
	scope := func(tainted bool) bool {
		return whole.Passed != nil && whole.Passed(LentScope(*d.Grant, *here.Tool, whole.Args, *d.Lent, *there.Tool, lent, tainted))
	}
	told := taintTells(*d.Grant, *here.Tool, whole.Tainted) || taintTells(*d.Lent, *there.Tool, whole.Tainted)
	switch {
	case whole.Approved == d.Digest:
		d.Verdict, d.Asked, d.Reason = Admit, true, "approved"
		d.asked = []*Grant{d.Grant, d.Lent}
	case len(why) == 0:
		d.Verdict, d.Reason, d.asked = Admit, "granted", []*Grant{d.Grant, d.Lent}
	case scope(true) || !told && scope(false):
		d.Verdict, d.Reason = Admit, "approved for this run"
	case whole.Approved != "":
		d.Code, d.Reason = problem.Conflict, "what was approved is not what would run now; ask again"
	default:
		d.Verdict, d.Reason = Hold, strings.Join(why, "; ")
	}
	return d
}

// LentScope is what an approval for the rest of the run is about, of a call that a connection lends to.
func LentScope(g Grant, t Tool, args json.RawMessage, lending Grant, lender Tool, lent json.RawMessage, tainted bool) string {
	return permit.Digest([]byte("lent for the run"), []byte(Scope(g, t, args, tainted)), []byte(Scope(lending, lender, lent, tainted)))
}

func named(k Known, otherwise string) string {
	if k.Tool == nil {
		return otherwise
	}
	return k.Tool.Full
}
