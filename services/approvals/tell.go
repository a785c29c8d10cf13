package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/services/approvals/internal/backlog"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
	"github.com/execwarden/execwarden/services/approvals/internal/courier"
)

// Bounds of telling approvers.
const (
	allNotices  = "ew.v1.*.notice.>"
	maxWaiting  = 1000 // notices of one target; one more is given up, and recorded as that
	maxAttempts = 10
	maxAge      = 24 * time.Hour   // of a notice that is not sent yet
	maxRetry    = 15 * time.Minute // the longest pause between attempts that the target did not ask for
	maxSending  = 256              // attempts at once, over all tenants
)

// onNotice hears what approvers are told of, and queues a notice for each target that wants it. The approval itself
// waits for none of this.
func (s *Service) onNotice(ctx context.Context, h bus.Heard) error {
	var about target.About
	var run id.Run
	switch ev := h.Event.(type) {
	case approval.Requested:
		about, run = target.Requested, ev.Run
	case approval.Escalated:
		about, run = target.Escalated, ev.Run
	case approval.Decided:
		about, run = target.Decided, ev.Run
	case approval.Expired:
		about, run = target.Expired, ev.Run
	default:
		return nil
	}
	which, err := id.Parse[id.Approval](h.At.Key)
	if err != nil {
		return nil
	}
	if err := s.view.Current(); err != nil {
		return err // a target might be among what was missed
	}
	for _, t := range s.targets.All(h.At.Tenant) {
		if t.Removed || !slices.Contains(t.About, about) {
			continue
		}
		n := id.Derive[id.Notice](string(h.At.Tenant), string(h.Envelope.ID), string(t.Target))
		if h.Again() && s.backlog.Known(h.At.Tenant, n) {
			continue
		}
		var ev schemas.Event = notice.Queued{Notice: n, Target: t.Target, About: about, Approval: which, Run: run, Owner: s.deps.Conn.Life()}
		if s.backlog.Waiting(backlog.Target{Tenant: h.At.Tenant, Target: t.Target}) >= maxWaiting {
			ev = notice.Failed{Notice: n, Target: t.Target, About: about, Approval: which, Reason: "too many notices to it wait already"}
		}
		if err := s.note(ctx, h.At.Tenant, run, t, n, 0, ev, h.Envelope); err != nil {
			return err // heard again, those that are stored have their ids
		}
	}
	return nil
}

// note records what became of a notice, and folds it at once: what is recorded is not done again.
func (s *Service) note(ctx context.Context, tenant id.Tenant, run id.Run, t target.Defined, n id.Notice, attempt int, ev schemas.Event, cause schemas.Envelope) error {
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{
		Event: ev, Tenant: tenant, Key: string(t.Target), Run: run, Actor: actor, Causation: cause.ID, Correlation: cause.Correlation,
		ID: id.Derive[id.Event](string(n), ev.Kind(), strconv.Itoa(attempt)),
	})
	if err != nil {
		return err
	}
	s.backlog.Apply(tenant, seq, s.now(), ev)
	switch ev.(type) {
	case notice.Sent, notice.Failed, notice.Retried:
		s.told.WithLabelValues(string(t.Type), strings.TrimPrefix(ev.Kind(), "notice.")).Inc()
	}
	select {
	case s.kick <- struct{}{}:
	default: // it is about to look anyway
	}
	return nil
}

// tell sends what is due until ctx ends. Each target has one attempt at a time and its own pauses, so that none waits
// for another. What was queued before a restart, or by an instance that is gone, is found on the stream.
func (s *Service) tell(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	var mu sync.Mutex
	busy := map[backlog.Target]bool{}
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.kick:
		}
		if err := s.refreshNotices(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Warn("notices", "err", err)
			}
			continue
		}
		for _, n := range s.backlog.Due(s.deps.Conn.Life(), s.now()) {
			of := backlog.Target{Tenant: n.Tenant, Target: n.Target}
			mu.Lock()
			skip := busy[of] || len(busy) >= maxSending
			if !skip {
				busy[of] = true
			}
			mu.Unlock()
			if skip {
				continue
			}
			sending.Go(func() {
				err := s.attempt(ctx, n)
				if err != nil && ctx.Err() == nil {
					s.log.WarnContext(ctx, "notice", "notice", n.Notice, "target", n.Target, "err", err)
				}
				mu.Lock()
				delete(busy, of)
				mu.Unlock()
				if err != nil {
					return // due still; the ticker comes back to it, and not at once
				}
				select {
				case s.kick <- struct{}{}:
				default:
				}
			})
		}
	}
}

// tellEvery is how often notices are looked for when nothing else says that there is one.
const tellEvery = 500 * time.Millisecond

// attempt sends one notice once and records how that went. An error is no record: it is due again.
func (s *Service) attempt(ctx context.Context, n backlog.Notice) error {
	if err := s.view.Current(); err != nil {
		return err // the target may be there, and not be heard of yet
	}
	t, ok := s.targets.Get(n.Tenant, string(n.Target))
	refusal, err := s.carry(ctx, n, t, ok)
	if err != nil {
		return err
	}
	attempts := n.Attempts + 1
	var ev schemas.Event
	switch {
	case refusal == nil:
		// A crash before this is recorded has the notice sent again, under the same id.
		ev = notice.Sent{Notice: n.Notice, Target: n.Target, About: n.About, Approval: n.Approval, Attempts: attempts, Owner: s.deps.Conn.Life()}
	case refusal.Final || attempts >= maxAttempts:
		ev = notice.Failed{Notice: n.Notice, Target: n.Target, About: n.About, Approval: n.Approval, Attempts: attempts, Reason: refusal.Reason, Owner: s.deps.Conn.Life()}
	default:
		ev = notice.Retried{Notice: n.Notice, Target: n.Target, Attempt: attempts, Reason: refusal.Reason, Owner: s.deps.Conn.Life(),
			NextAt: s.now().Add(max(pause(s.cfg.NoticeRetry, attempts), refusal.After)).UTC()}
	}
	return s.note(ctx, n.Tenant, n.Run, t, n.Notice, attempts, ev, schemas.Envelope{})
}

// pause doubles with each attempt, and varies by a quarter so that many do not come back at once.
func pause(first time.Duration, attempts int) time.Duration {
	d := min(first<<min(attempts-1, 30), maxRetry)
	if d <= 0 {
		d = maxRetry
	}
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// carry makes the attempt. What it gives as an error is a dependency's, not the target's.
func (s *Service) carry(ctx context.Context, n backlog.Notice, t target.Defined, known bool) (*courier.Refusal, error) {
	final := func(reason string) (*courier.Refusal, error) {
		return &courier.Refusal{Reason: reason, Final: true}, nil
	}
	switch {
	case !known || t.Removed:
		return final("the target was removed")
	case s.now().Sub(n.At) > maxAge:
		return final("it could not be told for a day")
	}
	a, err := s.fold(ctx, n.Tenant, n.Approval)
	if err != nil {
		return nil, err
	}
	if a.Requested == nil {
		return final("the approval is not on the record any more")
	}
	shown := a.Show(s.now())
	if (n.About == target.Requested || n.About == target.Escalated) && shown.State != book.Waiting {
		return final("it does not wait any more")
	}
	t, to, err := s.address(ctx, n.Tenant, n.Target)
	if problem.CodeOf(err) == problem.NotFound {
		return final("the target's address is gone")
	}
	if err != nil {
		return nil, err
	}
	return refused(ctx, s.courier.Carry(ctx, t.Type, to, s.notice(n, t, shown)))
}

// refused reads the courier's word.
func refused(ctx context.Context, err error) (*courier.Refusal, error) {
	var refusal *courier.Refusal
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, problem.Wrap(err, problem.Unavailable, "the attempt was cut off")
	case errors.As(err, &refusal):
		return refusal, nil
	}
	return nil, err
}

func (s *Service) notice(n backlog.Notice, t target.Defined, a ask.Approval) courier.Notice {
	out := courier.Notice{
		ID: n.Notice, About: n.About, Tenant: n.Tenant, Approval: a.Approval, State: a.State, By: a.By, Agent: a.Agent, Tool: a.Tool,
		Run: a.Run, Grant: a.Grant, Reason: a.Reason, Expires: a.ExpiresAt,
	}
	if s.cfg.ConsoleURL != "" {
		out.Link = strings.TrimSuffix(s.cfg.ConsoleURL, "/") + "/approvals/" + string(a.Approval)
	}
	if t.Arguments {
		out.Args, out.Input = a.Body.Args, a.Body.Input
	}
	return out
}

// sealed is what the vault keeps of a target.
type sealed struct {
	Address string `json:"address"`
	Secret  string `json:"secret,omitempty"`
	Salt    string `json:"salt,omitempty"` // of a mail address, which can be guessed: its fingerprint confirms no guess
}

// An address is sealed before the definition that it is of is said. Between the two, and after a crash there, it is
// used by nobody until the definition is said.
const (
	settleWithin = 2 * time.Second
	settleLook   = 20 * time.Millisecond
)

// address opens the address of a target, for one attempt, and gives the definition that it is of. Problems: not_found,
// unavailable while the target is being changed.
func (s *Service) address(ctx context.Context, tenant id.Tenant, name id.Target) (target.Defined, courier.Address, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		secret, err := s.vault.Get(ctx, tenant, string(name))
		if err != nil {
			return target.Defined{}, courier.Address{}, err
		}
		if t, ok := s.targets.Get(tenant, string(name)); ok && !t.Removed && vault.Fingerprint(secret) == t.Fingerprint {
			to, err := opened(t, secret)
			return t, to, err
		}
		select {
		case <-ctx.Done():
			return target.Defined{}, courier.Address{}, problem.New(problem.Unavailable, "the address of target %s is being changed; if that goes on, define the target again", id.Name(name))
		case <-time.After(settleLook):
		}
	}
}

func opened(t target.Defined, secret vault.Secret) (courier.Address, error) {
	var kept sealed
	if err := json.Unmarshal([]byte(secret.Reveal()), &kept); err != nil {
		return courier.Address{}, problem.New(problem.NotFound, "the address of %s cannot be read", t.Target) // the cause could show it
	}
	return courier.Address{To: kept.Address, Secret: kept.Secret, Private: t.Private}, nil
}

// refreshNotices writes the backlog up to the end of the stream.
func (s *Service) refreshNotices(ctx context.Context) error {
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, allNotices, s.noted+1) {
		if err != nil {
			return err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			s.backlog.Apply(e.At.Tenant, e.Seq, e.Envelope.Time, ev)
		}
		s.noted = e.Seq
	}
	return nil
}
