package book_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

var (
	now     = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	members = []id.Member{"mem_a", "mem_b", "mem_c"}
)

func opened(quorum int, role member.Role) approval.Requested {
	return approval.Requested{Approval: "apr_1", Call: "call_1", Run: "run_1", Digest: "right", Quorum: quorum, Approver: role, Requested: 7, ExpiresAt: now.Add(time.Hour),
		StartedBy: "mem_a", EscalateAt: now.Add(30 * time.Minute), Body: approval.Shown{Args: json.RawMessage(`{"of":"right"}`)}}
}

// machine is one approval and whatever members, clocks and repeated deliveries do to it.
type machine struct {
	state    book.State
	shadow   *book.Book
	quorum   int
	fourEyes bool
	digest   string // what waits
	editors  map[id.Member]bool
	edited   uint64 // sequence of the last edit
	at       time.Time
	seq      uint64
	voted    map[id.Member]bool // and whether for the run
	decision *approval.Decided  // the first
	expired  bool
	told     bool // it was escalated
}

func (m *machine) apply(ev schemas.Event) {
	m.seq++
	m.state.Apply(m.seq, ev)
	m.shadow.Apply("tnt_a", "apr_1", m.seq, ev)
}

func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{shadow: book.New(), quorum: rapid.IntRange(0, 3).Draw(t, "quorum"), fourEyes: rapid.Bool().Draw(t, "four eyes"), digest: "right",
			editors: map[id.Member]bool{}, at: now, voted: map[id.Member]bool{}}
		var said []schemas.Event
		say := func(ev schemas.Event) { said = append(said, ev); m.apply(ev) }
		first := opened(m.quorum, "")
		first.FourEyes = m.fourEyes
		say(first)
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(t *rapid.T) {
				by := rapid.SampledFrom(members).Draw(t, "member")
				q := ask.DecideApproval{Approval: "apr_1", Digest: rapid.SampledFrom([]string{m.digest, m.digest, m.digest, "right", "edit 1", "wrong", ""}).Draw(t, "digest"), Approve: rapid.Bool().Draw(t, "approve"), ForRun: rapid.Bool().Draw(t, "for run")}
				role := rapid.SampledFrom([]member.Role{member.Approver, member.Admin}).Draw(t, "role")
				ev, err := m.state.Decide(q, book.Decider{Member: by, Role: role}, m.at)
				over := m.at.After(now.Add(time.Hour)) || m.expired
				switch ev := ev.(type) {
				case nil:
					forRun, voted := m.voted[by]
					repeats := m.decision != nil && m.decision.By == by && m.decision.Approved == q.Approve && m.decision.ForRun == q.ForRun || q.Approve && voted && forRun == q.ForRun
					if err == nil && !(repeats && q.Digest == m.digest) {
						t.Fatalf("%+v by %s is taken for a repetition", q, by)
					}
				case approval.Decided:
					switch {
					case m.decision != nil || over || q.Digest != m.digest:
						t.Fatalf("decided by %+v, decision before %+v, over %v", q, m.decision, over)
					case ev.Digest != m.digest || ev.Edited != m.edited || ev.By != by || ev.Approved != q.Approve || ev.Requested != 7 || ev.Call != "call_1":
						t.Fatalf("%+v", ev)
					case q.Approve && m.fourEyes && (by == "mem_a" || m.editors[by]):
						t.Fatalf("%s approves what they asked for", by)
					case q.Approve && len(m.voted)+1 < m.quorum:
						t.Fatalf("approved by %d of %d", len(m.voted)+1, m.quorum)
					case q.Approve && has(m.voted, by):
						t.Fatalf("%s approved twice", by)
					case ev.ForRun && (!ev.Approved || role != member.Admin || slices.Contains(slices.Collect(maps.Values(m.voted)), false)):
						t.Fatalf("%+v by role %s, after votes %v", ev, role, m.voted)
					}
					m.decision = &ev
					say(ev)
				case approval.Voted:
					if m.decision != nil || over || q.Digest != m.digest || !q.Approve || has(m.voted, by) || ev.ForRun != q.ForRun || q.ForRun && role != member.Admin || ev.By != by || ev.Digest != m.digest ||
						m.fourEyes && (by == "mem_a" || m.editors[by]) {
						t.Fatalf("%+v is a vote", q)
					}
					m.voted[by] = ev.ForRun
					say(ev)
				}
			},
			"edit": func(t *rapid.T) {
				by := rapid.SampledFrom(members).Draw(t, "member")
				q := ask.EditApproval{Approval: "apr_1", Digest: rapid.SampledFrom([]string{m.digest, m.digest, m.digest, "right", ""}).Draw(t, "digest")}
				to := rapid.SampledFrom([]string{"right", "edit 1", "edit 2"}).Draw(t, "to")
				who := book.Decider{Member: by, Role: member.Approver}
				over := m.decision != nil || m.expired || m.at.After(now.Add(time.Hour))
				if err := m.state.MayEdit(q, who, m.at); err != nil {
					if !over && q.Digest == m.digest && m.state.Edits < 50 {
						t.Fatal(err)
					}
					return
				}
				ev, err := m.state.Edit(q, ask.CheckedEdit{Digest: to, Quorum: m.quorum, FourEyes: m.fourEyes, Args: json.RawMessage(`{"of":"` + to + `"}`)}, who)
				switch {
				case over:
					t.Fatal("edited after the end")
				case err != nil && q.Digest == m.digest, ev != nil && q.Digest != m.digest, ev == nil && err == nil && to != m.digest:
					t.Fatalf("%+v to %s gives %+v, %v", q, to, ev, err)
				case ev != nil:
					m.digest, m.voted, m.editors[by] = to, map[id.Member]bool{}, true // voters are on the final digest
					say(ev)
					m.edited = m.seq
				}
			},
			"escalate": func(*rapid.T) {
				for _, due := range m.shadow.DueAt(m.at) {
					if !due.Expired {
						m.told = true
						say(approval.Escalated{Approval: "apr_1", Digest: m.digest})
					}
				}
			},
			"expire": func(*rapid.T) {
				if m.decision == nil && m.at.After(now.Add(time.Hour)) {
					m.expired = true
					say(approval.Expired{Approval: "apr_1", Digest: "right"})
				}
			},
			"time passes": func(t *rapid.T) {
				m.at = m.at.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes")) * time.Minute)
			},
			"hear again": func(t *rapid.T) { // the stream is read from its start by a new process
				again := book.New()
				for i, ev := range said {
					again.Apply("tnt_a", "apr_1", uint64(i+1), ev)
				}
				if a, b := fmt.Sprintf("%+v", again.List("tnt_a", false, 0, m.at)), fmt.Sprintf("%+v", m.shadow.List("tnt_a", false, 0, m.at)); a != b {
					t.Fatalf("%s\n%s", a, b)
				}
			},
			"a stray event": func(t *rapid.T) { // a second end that somebody wrote: recorded, and of no effect
				if m.decision != nil || m.expired {
					m.apply(rapid.SampledFrom([]schemas.Event{approval.Expired{Approval: "apr_1"}, approval.Decided{Approval: "apr_1", Approved: true, By: "mem_x"},
						approval.Decided{Approval: "apr_1", By: "mem_x"}, approval.Edited{Approval: "apr_1", Digest: "late", By: "mem_x"}, opened(0, "")}).Draw(t, "stray"))
					said = append(said, approval.Expired{Approval: "apr_1"})
				}
			},
			"": func(t *rapid.T) {
				want := book.Waiting
				switch {
				case m.decision != nil && m.decision.Approved:
					want = book.Approved
				case m.decision != nil:
					want = book.Denied
				case m.expired || m.at.After(now.Add(time.Hour)):
					want = book.Expired
				}
				if got := m.state.Word(m.at); got != want {
					t.Fatalf("it is %s, want %s", got, want)
				}
				if got := m.state.Show(m.at); got.Digest != m.digest || string(got.Body.Args) != `{"of":"`+m.digest+`"}` || (len(got.Asked) > 0) != (m.edited > 0) || len(got.Editors) != len(m.editors) {
					t.Fatalf("%+v is shown, and %s waits", got, m.digest)
				}
				if got := m.state.Show(m.at).Escalated; got != (m.told || want == book.Waiting && m.at.After(now.Add(30*time.Minute))) {
					t.Fatalf("escalated %v, told %v", got, m.told)
				}
				open := m.shadow.List("tnt_a", true, 0, m.at)
				due := m.shadow.DueAt(m.at)
				if (len(open) == 1) != (want == book.Waiting) || (len(due) == 1) != (want == book.Expired && !m.expired || want == book.Waiting && m.at.After(now.Add(30*time.Minute)) && !m.told) {
					t.Fatalf("%s, %d open and %d due", want, len(open), len(due))
				}
			},
		})
	})
}

func has(m map[id.Member]bool, k id.Member) bool { _, ok := m[k]; return ok }

// An approval for the rest of the run is a grant in all but name: it takes the right to grant, of each who votes.
func TestForRun(t *testing.T) {
	admin, approver := book.Decider{Member: "mem_a", Role: member.Admin}, book.Decider{Member: "mem_b", Role: member.Approver}
	other := book.Decider{Member: "mem_c", Role: member.Owner}
	once := ask.DecideApproval{Approval: "apr_1", Digest: "right", Approve: true}
	run := once
	run.ForRun = true
	no := ask.DecideApproval{Approval: "apr_1", Digest: "right", ForRun: true}
	for name, c := range map[string]struct {
		quorum int
		votes  []ask.DecideApproval // by admin, then by other
		by     book.Decider
		q      ask.DecideApproval
		want   problem.Code
		forRun bool
	}{
		"an admin":                {by: admin, q: run, forRun: true},
		"an approver":             {by: approver, q: run, want: problem.Denied},
		"an approver, once":       {by: approver, q: once},
		"a denial":                {by: admin, q: no, want: problem.Invalid},
		"two for the run":         {quorum: 2, votes: []ask.DecideApproval{run}, by: other, q: run, forRun: true},
		"the second once":         {quorum: 2, votes: []ask.DecideApproval{run}, by: other, q: once},
		"the first once":          {quorum: 2, votes: []ask.DecideApproval{once}, by: other, q: run, want: problem.Conflict},
		"an approver, the second": {quorum: 2, votes: []ask.DecideApproval{run}, by: approver, q: run, want: problem.Denied},
		"the same, otherwise":     {quorum: 3, votes: []ask.DecideApproval{once}, by: admin, q: run, want: problem.Conflict},
	} {
		var s book.State
		s.Apply(1, opened(c.quorum, ""))
		for i, q := range c.votes {
			ev, err := s.Decide(q, []book.Decider{admin, other}[i], now)
			if err != nil {
				t.Fatal(err)
			}
			s.Apply(uint64(i+2), ev)
		}
		ev, err := s.Decide(c.q, c.by, now)
		if decided, ok := ev.(approval.Decided); problem.CodeOf(err) != c.want || ok && decided.ForRun != c.forRun || c.want == "" && !ok {
			t.Errorf("%s: %+v, %v", name, ev, err)
		}
	}
}

func TestRoles(t *testing.T) {
	yes := ask.DecideApproval{Approval: "apr_1", Digest: "right", Approve: true}
	for _, c := range []struct {
		wants, has member.Role
		want       problem.Code
	}{
		{"", member.Approver, ""}, {member.Admin, member.Admin, ""}, {member.Admin, member.Owner, ""}, {member.Approver, member.Approver, ""},
		{member.Admin, member.Approver, problem.Denied}, {member.Owner, member.Admin, problem.Denied},
	} {
		var s book.State
		s.Apply(1, opened(0, c.wants))
		if _, err := s.Decide(yes, book.Decider{Member: "mem_a", Role: c.has}, now); problem.CodeOf(err) != c.want {
			t.Errorf("%q decides where %q is wanted: %v", c.has, c.wants, err)
		}
	}
	var none book.State
	if _, err := none.Decide(yes, book.Decider{Member: "mem_a", Role: member.Owner}, now); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("an approval that is not there: %v", err)
	}
}

// Votes and decisions of one tenant never show with another, and closed ones are forgotten before the book is full.
func TestBook(t *testing.T) {
	b := book.New()
	seq := uint64(0)
	for i := range 1200 {
		a := id.Approval(fmt.Sprint("apr_", i))
		r := opened(0, "")
		r.Approval = a
		seq++
		b.Apply("tnt_a", a, seq, r)
		if i%3 != 0 { // every third waits
			seq++
			b.Apply("tnt_a", a, seq, approval.Decided{Approval: a, By: "mem_a"})
		}
	}
	if open := b.List("tnt_a", true, 0, now); len(open) != 400 || b.Open() != 400 {
		t.Errorf("%d wait, %d are counted: those that wait are never forgotten", len(open), b.Open())
	}
	if all := b.List("tnt_a", false, 0, now); len(all) > 1001 || all[0].Approval.Approval != "apr_1199" {
		t.Errorf("%d are kept, the newest is %s", len(all), all[0].Approval.Approval)
	}
	if other := b.List("tnt_b", false, 0, now); len(other) != 0 {
		t.Errorf("another tenant has %v", other)
	}
}
