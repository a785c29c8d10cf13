// Package book folds approvals. What an approval's state is, and whether a decision still counts, is decided here.
package book

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// The states of an approval.
const (
	Waiting  = "waiting"
	Approved = "approved"
	Denied   = "denied"
	Expired  = "expired"
)

// maxClosed is how many closed approvals of a tenant are kept for lists.
const maxClosed = 500

// State is one approval as far as its events go.
type State struct {
	Requested *approval.Requested
	Edited    *approval.Edited // the last edit; what it says stands in the place of what was requested
	EditedSeq uint64
	Editors   []id.Member // each once, in the order of their first edit
	Edits     int
	Votes     []id.Member // who approved what waits now, while more have to
	ForRun    []id.Member // those of them who approved it for the rest of the run
	Decided   *approval.Decided
	Expired   bool
	Ended     string // why there was nothing to decide any more, when it expired before its time
	Escalated bool
	First     uint64 // of the request: its place in lists, which never changes
	Seq       uint64 // of the last event
}

// Apply takes the next event of the approval.
func (s *State) Apply(seq uint64, ev schemas.Event) {
	s.Seq = seq
	switch ev := ev.(type) {
	case approval.Requested:
		if s.Requested == nil {
			s.Requested, s.First = &ev, seq
		}
	case approval.Edited:
		if s.Requested != nil && !s.closed() {
			// The votes were about other arguments, also when an edit brings back those that somebody voted for.
			s.Edited, s.EditedSeq, s.Votes, s.ForRun = &ev, seq, nil, nil
			s.Edits++
			if !slices.Contains(s.Editors, ev.By) {
				s.Editors = append(s.Editors, ev.By)
			}
		}
	case approval.Voted:
		if s.Requested != nil && !s.closed() && ev.Digest == s.Waits().Digest && !slices.Contains(s.Votes, ev.By) {
			s.Votes = append(s.Votes, ev.By)
			if ev.ForRun {
				s.ForRun = append(s.ForRun, ev.By)
			}
		}
	case approval.Escalated:
		s.Escalated = s.Escalated || s.Requested != nil && !s.closed()
	case approval.Decided:
		if !s.closed() {
			s.Decided = &ev
		}
	case approval.Expired:
		if !s.closed() {
			s.Expired, s.Ended = true, ev.Reason
		}
	}
}

// Waits is what is decided on: the request, with what the last edit put in its place.
func (s *State) Waits() approval.Requested {
	r := *s.Requested
	if e := s.Edited; e != nil {
		r.Digest, r.Grant, r.Reason, r.Quorum, r.Approver, r.FourEyes = e.Digest, e.Grant, e.Reason, e.Quorum, e.Approver, e.FourEyes
		r.Body.Args = e.Body.Args
	}
	return r
}

// asked says whether a member asked for what waits: by starting the run, or by editing its arguments. Who edited them
// first counts although somebody else edited them since: what waits may still be mostly theirs.
func (s *State) asked(m id.Member) bool {
	return m == s.Requested.StartedBy || slices.Contains(s.Editors, m)
}

func (s *State) closed() bool { return s.Decided != nil || s.Expired }

// Word is the approval's state at a moment. What is past its time is expired, whether or not that was said yet.
func (s *State) Word(now time.Time) string {
	switch {
	case s.Decided != nil && s.Decided.Approved:
		return Approved
	case s.Decided != nil:
		return Denied
	case s.Expired || s.Requested != nil && now.After(s.Requested.ExpiresAt):
		return Expired
	}
	return Waiting
}

// Show is the approval as lists show it.
func (s *State) Show(now time.Time) ask.Approval {
	a := ask.Approval{Requested: s.Waits(), State: s.Word(now)}
	if s.Edited != nil {
		a.Asked, a.Editors = s.Requested.Body.Args, slices.Clone(s.Editors)
	}
	a.Escalated = s.Escalated || s.escalates(now)
	if s.Decided != nil {
		a.By, a.ForRun = string(s.Decided.By), s.Decided.ForRun
	} else {
		a.Votes = slices.Clone(s.Votes)
	}
	return a
}

// escalates says whether it is time to tell more people, and nobody has said so yet.
func (s *State) escalates(now time.Time) bool {
	at := s.Requested.EscalateAt
	return !s.Escalated && s.Word(now) == Waiting && !at.IsZero() && now.After(at)
}

// Decider is the member who decides.
type Decider struct {
	Member id.Member
	Role   member.Role
}

// Decide checks a member's decision, and gives the event that it leads to: a vote, while the quorum needs more, or the
// decision. It gives nil and no error when the same member decided the same before. A denial needs no quorum.
func (s *State) Decide(q ask.DecideApproval, by Decider, now time.Time) (schemas.Event, error) {
	if s.Requested == nil {
		return nil, problem.New(problem.NotFound, "there is no approval %s", q.Approval)
	}
	r := s.Waits()
	if s.Decided != nil && s.Decided.By == by.Member && s.Decided.Approved == q.Approve && s.Decided.Digest == q.Digest && s.Decided.ForRun == q.ForRun {
		return nil, nil
	}
	switch err := s.open(by, now); {
	case err != nil:
		return nil, err
	case q.Digest != r.Digest:
		return nil, problem.New(problem.Conflict, "the decision is about something else than what waits; look at it again")
	case q.Approve && r.FourEyes && s.asked(by.Member):
		return nil, problem.New(problem.Denied, "the grant wants four eyes: you asked for this, so somebody else has to approve it; you may deny it")
	case q.ForRun && !q.Approve:
		return nil, problem.New(problem.Invalid, "a denial is of one call; revoke the grant to end all of them")
	case q.ForRun && !by.Role.MayConfigure():
		return nil, problem.New(problem.Denied, "a %s may approve this call; only who may make grants approves for the rest of the run", by.Role)
	case q.Approve && slices.Contains(s.Votes, by.Member) && q.ForRun != slices.Contains(s.ForRun, by.Member):
		return nil, problem.New(problem.Conflict, "you approved it already, and otherwise")
	case q.Approve && slices.Contains(s.Votes, by.Member) && len(s.Votes) < max(r.Quorum, 1):
		return nil, nil // when there are enough by now, since somebody's vote counts again, saying it again decides
	case q.ForRun && len(s.ForRun) < len(s.Votes):
		// What the votes come to is what each of them allows; who asks for more is told, and not given less.
		return nil, problem.New(problem.Conflict, "others approved this one call and not the rest of the run; approve the one call, or deny it")
	}
	if q.Approve && len(s.Votes)+1 < r.Quorum {
		return approval.Voted{Approval: r.Approval, Call: r.Call, Run: r.Run, Digest: r.Digest, By: by.Member, ForRun: q.ForRun, Body: approval.Note{Note: q.Note}}, nil
	}
	return approval.Decided{Approval: r.Approval, Call: r.Call, Run: r.Run, Digest: r.Digest, Approved: q.Approve, By: by.Member,
		Requested: r.Requested, Edited: s.EditedSeq, ForRun: q.ForRun, Body: approval.Note{Note: q.Note}}, nil
}

// open says why a member cannot do anything about the approval, nil when they can.
func (s *State) open(by Decider, now time.Time) error {
	r := s.Waits()
	switch word := s.Word(now); {
	case s.Ended != "":
		return problem.New(problem.Expired, "there is nothing to decide any more: %s", s.Ended)
	case word == Expired:
		return problem.New(problem.Expired, "the approval expired at %s", r.ExpiresAt.Format(time.RFC3339))
	case word != Waiting:
		return problem.New(problem.Conflict, "%s has decided: %s", s.Decided.By, word)
	case r.Approver != "" && !by.Role.AtLeast(r.Approver):
		return problem.New(problem.Denied, "the grant wants a member with role %s, or a wider one, to decide", r.Approver)
	}
	return nil
}

// maxEdits bounds the edits of one approval: each is an event with all arguments.
const maxEdits = 50

// MayEdit says why a member cannot edit what waits, nil when they can. It comes before the broker is asked what it would
// say of the new arguments, and Edit after.
func (s *State) MayEdit(q ask.EditApproval, by Decider, now time.Time) error {
	if s.Requested == nil {
		return problem.New(problem.NotFound, "there is no approval %s", q.Approval)
	}
	switch err := s.open(by, now); {
	case err != nil:
		return err
	case q.Digest != s.Waits().Digest && !s.repeats(q, by):
		return problem.New(problem.Conflict, "the edit is of something else than what waits; look at it again")
	case s.Edits >= maxEdits:
		return problem.New(problem.Busy, "it was edited %d times, which is enough; deny it", s.Edits)
	}
	return nil
}

// repeats says whether the edit may be one that is stored, and was asked for again because its answer was lost.
func (s *State) repeats(q ask.EditApproval, by Decider) bool {
	return s.Edited != nil && s.Edited.By == by.Member && s.Edited.Replaces == q.Digest
}

// Edit gives the event of an edit that the broker has checked, and nil when it changes nothing.
func (s *State) Edit(q ask.EditApproval, checked ask.CheckedEdit, by Decider) (schemas.Event, error) {
	r := s.Waits()
	switch {
	case checked.Digest == r.Digest:
		return nil, nil
	case q.Digest != r.Digest:
		return nil, problem.New(problem.Conflict, "you edited it already, and otherwise; look at it again")
	}
	return approval.Edited{Approval: r.Approval, Call: r.Call, Run: r.Run, Replaces: r.Digest, Digest: checked.Digest, Grant: checked.Grant,
		Reason: checked.Reason, Quorum: checked.Quorum, Approver: checked.Approver, FourEyes: checked.FourEyes, By: by.Member,
		Body: approval.Change{Args: checked.Args, Note: q.Note}}, nil
}

// Book keeps the approvals of all tenants.
type Book struct {
	mu      sync.Mutex
	tenants map[id.Tenant]map[id.Approval]*State
}

// New makes an empty book.
func New() *Book { return &Book{tenants: map[id.Tenant]map[id.Approval]*State{}} }

// Apply takes the next event on the stream.
func (b *Book) Apply(tenant id.Tenant, key id.Approval, seq uint64, ev schemas.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tenants[tenant]
	if t == nil {
		t = map[id.Approval]*State{}
		b.tenants[tenant] = t
	}
	if t[key] == nil {
		t[key] = &State{}
	}
	t[key].Apply(seq, ev)
	if len(t) > 2*maxClosed {
		forget(t)
	}
}

// forget drops the oldest closed approvals: the ledger keeps them.
func forget(t map[id.Approval]*State) {
	var closed []id.Approval
	for k, s := range t {
		if s.closed() {
			closed = append(closed, k)
		}
	}
	slices.SortFunc(closed, func(a, b id.Approval) int { return cmp.Compare(t[b].Seq, t[a].Seq) })
	for _, k := range closed[min(maxClosed, len(closed)):] {
		delete(t, k)
	}
}

// Row is an approval in a list, with its place.
type Row struct {
	ask.Approval
	First uint64
}

// List gives a tenant's approvals that were requested before a place, the newest first; zero is the newest of all.
func (b *Book) List(tenant id.Tenant, open bool, before uint64, now time.Time) []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []Row
	for _, s := range b.tenants[tenant] {
		if s.Requested == nil || open && s.Word(now) != Waiting || before > 0 && s.First >= before {
			continue
		}
		rows = append(rows, Row{s.Show(now), s.First})
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(b.First, a.First) })
	return rows
}

// Due names an approval whose time is over, or that escalates, and of which nobody has said so.
type Due struct {
	Tenant  id.Tenant
	State   State
	Expired bool
}

// DueAt lists what is due.
func (b *Book) DueAt(now time.Time) []Due {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []Due
	for tenant, t := range b.tenants {
		for _, s := range t {
			switch {
			case s.Requested == nil || s.closed():
			case now.After(s.Requested.ExpiresAt):
				due = append(due, Due{tenant, *s, true})
			case s.escalates(now):
				due = append(due, Due{tenant, *s, false})
			}
		}
	}
	return due
}

// Waiting lists what waits, over all tenants.
func (b *Book) Waiting() (out []Due) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tenant, t := range b.tenants {
		for _, s := range t {
			if s.Requested != nil && !s.closed() {
				out = append(out, Due{Tenant: tenant, State: *s})
			}
		}
	}
	return out
}

// Open counts what waits, over all tenants.
func (b *Book) Open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tenants {
		for _, s := range t {
			if s.Requested != nil && !s.closed() {
				n++
			}
		}
	}
	return n
}
