package store

import (
	"fmt"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// Verdict is what a verification comes to. Of several findings the worst counts.
type Verdict string

const (
	// Intact: everything is there, and signed heads vouch for it.
	Intact Verdict = "intact"
	// Unverifiable: nothing contradicts, and nobody whose key is known vouches.
	Unverifiable Verdict = "unverifiable"
	// Incomplete: something that was recorded is not here any more.
	Incomplete Verdict = "incomplete"
	// Tampered: something is here that is not what was recorded.
	Tampered Verdict = "tampered"
)

// severity orders verdicts.
var severity = map[Verdict]int{Intact: 0, Unverifiable: 1, Incomplete: 2, Tampered: 3}

// Problem is one finding. It is about the leaves First to Last of the tree; for a single row they are equal, and Seq
// and EventID name it too, as far as the row itself still does.
type Problem struct {
	Verdict     Verdict
	Tenant      string
	Stream      string
	First, Last int64
	Seq         uint64
	EventID     string
	What        string // what differs
}

func (p Problem) String() string {
	where := fmt.Sprintf("leaf %d", p.First)
	if p.Last != p.First {
		where = fmt.Sprintf("leaves %d to %d", p.First, p.Last)
	}
	if p.EventID != "" {
		where += ", event " + p.EventID
	}
	if p.Seq != 0 {
		where += fmt.Sprintf(", sequence %d", p.Seq)
	}
	return fmt.Sprintf("%s: tenant %s, stream %s, %s: %s", p.Verdict, p.Tenant, p.Stream, where, p.What)
}

// StreamReport is about one tree.
type StreamReport struct {
	Stream      string
	Leaves      int64       // rows found
	Bodies      int64       // rows found
	Undecoded   int64       // bodies whose event could not be read when it was recorded
	Size        int64       // up to where the root could be computed
	Root        merkle.Hash // at Size, computed from the leaves
	Checkpoints int64       // whose signature and root are right
	Signed      int64       // size of the largest of them: the leaves after it rest on the database alone
}

// maxProblems bounds a report; ProblemCount goes on.
const maxProblems = 100

// Report is the outcome of a verification.
type Report struct {
	Tenant       string
	Streams      []StreamReport
	Problems     []Problem // the first ones, in the order of the leaves for each stream
	ProblemCount int64

	worst Verdict
}

// Verdict is the worst finding.
func (r *Report) Verdict() Verdict {
	if r.worst == "" {
		return Intact
	}
	return r.worst
}

// add records a finding. One that continues the last one, row by row, makes that one longer.
func (r *Report) add(p Problem) {
	p.Tenant = r.Tenant
	if severity[p.Verdict] > severity[r.Verdict()] {
		r.worst = p.Verdict
	}
	r.ProblemCount++
	if n := len(r.Problems); n > 0 {
		last := &r.Problems[n-1]
		if last.Verdict == p.Verdict && last.Stream == p.Stream && last.What == p.What && last.Last+1 == p.First {
			last.Last = p.Last
			return
		}
	}
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, p)
	}
}
