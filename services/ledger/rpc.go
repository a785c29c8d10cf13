package ledger

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/ledger/internal/store"
)

// Bounds of an answer: it is one message on the bus.
const (
	maxEvents      = 200
	maxAnswerBytes = 400 << 10 // of raw events; base64 and the rest come on top
	maxRuns        = 100
)

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(
		rpc.On("events", s.events),
		rpc.On("runs", s.runs),
		rpc.On("timeline", s.timeline),
		rpc.On("verify", s.verify),
		rpc.On("position", s.position),
	)
}

// events merges the two streams by the time at which events were stored, each in its own order.
func (s *Service) events(ctx context.Context, who rpc.Caller, q ask.Events) (ask.EventPage, error) {
	limit := q.Limit
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	query := store.EventQuery{Tenant: string(who.Tenant), Run: string(q.Run), Kind: q.Kind, Actor: q.Actor, Limit: limit}
	query.Stream, query.After = string(schemas.Control), q.After.Control
	control, err := s.store.Events(ctx, query)
	if err != nil {
		return ask.EventPage{}, err
	}
	query.Stream, query.After = string(schemas.Activity), q.After.Activity
	activity, err := s.store.Events(ctx, query)
	if err != nil {
		return ask.EventPage{}, err
	}
	page := ask.EventPage{Events: []ask.Event{}, Next: q.After}
	size, c, a := 0, control.Events, activity.Events
	for len(c)+len(a) > 0 {
		from, place := &a, &page.Next.Activity
		if len(a) == 0 || len(c) > 0 && c[0].StoredAt.Before(a[0].StoredAt) {
			from, place = &c, &page.Next.Control
		}
		e := (*from)[0]
		if size += len(e.Raw); len(page.Events) == limit || size > maxAnswerBytes && len(page.Events) > 0 {
			page.More = true
			return page, nil
		}
		page.Events = append(page.Events, shown(e))
		*from, *place = (*from)[1:], e.Seq
	}
	// Everything that was found is in: go on behind what was looked at, which a filter may have let nothing pass of.
	page.Next = ask.Cursor{Control: max(page.Next.Control, control.Next), Activity: max(page.Next.Activity, activity.Next)}
	page.More = control.More || activity.More
	return page, nil
}

func (s *Service) timeline(ctx context.Context, who rpc.Caller, q ask.Timeline) (ask.EventPage, error) {
	found, err := s.store.Timeline(ctx, string(who.Tenant), string(schemas.Activity), string(q.Run), q.After, maxEvents)
	if err != nil {
		return ask.EventPage{}, err
	}
	page := ask.EventPage{Events: []ask.Event{}, Next: ask.Cursor{Activity: q.After}}
	size := 0
	for _, e := range found.Events {
		if size += len(e.Raw); size > maxAnswerBytes && len(page.Events) > 0 {
			page.More = true
			return page, nil
		}
		page.Events = append(page.Events, shown(e))
		page.Next.Activity = e.Seq
	}
	page.Next.Activity, page.More = max(page.Next.Activity, found.Next), found.More
	if q.After == 0 && len(page.Events) == 0 && !page.More {
		return page, problem.New(problem.NotFound, "there is no run %s", q.Run)
	}
	return page, nil
}

func shown(e store.Event) ask.Event {
	return ask.Event{Stream: e.Stream, Seq: e.Seq, Subject: e.Subject, Kind: e.Kind, Raw: e.Raw, StoredAt: e.StoredAt}
}

func (s *Service) runs(ctx context.Context, who rpc.Caller, q ask.Runs) (ask.RunPage, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	var before uint64
	if q.Before != "" {
		var err error
		if before, err = strconv.ParseUint(q.Before, 10, 64); err != nil {
			return ask.RunPage{}, problem.New(problem.Invalid, "before is what the last page called next")
		}
	}
	found, err := s.store.Runs(ctx, string(who.Tenant), string(schemas.Activity), before, min(limit, maxRuns))
	if err != nil {
		return ask.RunPage{}, err
	}
	page := ask.RunPage{Runs: []ask.RunRow{}}
	if found.Next != 0 {
		page.Next = strconv.FormatUint(found.Next, 10)
	}
	for _, r := range found.Runs {
		row, err := s.runRow(ctx, who.Tenant, r)
		if err != nil {
			return ask.RunPage{}, err
		}
		page.Runs = append(page.Runs, row)
	}
	return page, nil
}

// runRow reads the rest of a row from the run's first and last word.
func (s *Service) runRow(ctx context.Context, tenant id.Tenant, r store.Run) (ask.RunRow, error) {
	row := ask.RunRow{Run: id.Run(r.Run), State: "running", Created: r.FirstTime, Events: int(r.Events)}
	one := store.EventQuery{Tenant: string(tenant), Stream: r.Stream, Run: r.Run, Limit: 1}
	first := one
	first.Kind = run.Created{}.Kind()
	err := s.withOne(ctx, first, func(e eventlog.Stored) {
		if c, err := eventlog.Decode[run.Created](e); err == nil {
			row.Agent, row.Trigger = c.Agent.Agent, string(c.Trigger)
		}
	})
	if err != nil {
		return row, err
	}
	last := one
	last.Newest = true
	switch r.State {
	case run.Completed{}.Kind(), run.Failed{}.Kind(), run.Cancelled{}.Kind():
		last.Kind = r.State
		row.Ended = r.LastTime
	default:
		last.Noun = "approval"
	}
	err = s.withOne(ctx, last, func(e eventlog.Stored) {
		ev, err := e.Envelope.Decode()
		if err != nil {
			return
		}
		switch ev := ev.(type) {
		case run.Completed:
			row.State, row.Message = "completed", clip(ev.Body.Text)
		case run.Failed:
			row.State, row.Message = "failed", clip(ev.Code+": "+ev.Message)
		case run.Cancelled:
			row.State, row.Message = "cancelled", clip(ev.Reason)
		case approval.Requested:
			row.State, row.Message = "waiting_approval", ev.Tool
		}
	})
	return row, err
}

func (s *Service) withOne(ctx context.Context, q store.EventQuery, use func(eventlog.Stored)) error {
	page, err := s.store.Events(ctx, q)
	if err != nil || len(page.Events) == 0 {
		return err
	}
	e := page.Events[0]
	envelope, at, err := schemas.ParseEnvelope(e.Subject, e.Raw)
	if err != nil {
		return nil // not decodable: the row goes without it
	}
	if envelope, err = s.deps.Log.Restored(ctx, envelope); err != nil {
		return nil // its body is not to be had now: the row goes without it
	}
	use(eventlog.Stored{Stream: schemas.Stream(e.Stream), Seq: e.Seq, At: at, Envelope: envelope})
	return nil
}

// clip keeps a list's line short.
func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}

// verify proves everything that was stored when it was asked.
func (s *Service) verify(ctx context.Context, who rpc.Caller, _ ask.Verify) (ask.Verified, error) {
	if err := s.caughtUp(ctx); err != nil {
		return ask.Verified{}, err
	}
	trust, err := s.trust(ctx, who.Tenant) // before a new one is signed: the old must still hold
	if err != nil {
		return ask.Verified{}, err
	}
	if err := s.checkpointDue(ctx); err != nil && problem.CodeOf(err) != problem.Conflict {
		return ask.Verified{}, err // a conflict is what the report is about to name
	}
	report, err := s.store.Verify(ctx, string(who.Tenant), trust)
	if err != nil {
		return ask.Verified{}, err
	}
	out := ask.Verified{Verdict: string(report.Verdict()), Trees: []ask.Tree{}}
	if report.Verdict() == store.Intact {
		out.Verdict = "verified"
	}
	for _, t := range report.Streams {
		out.Leaves += t.Leaves
		out.Checkpoints += int(t.Checkpoints)
		out.Trees = append(out.Trees, ask.Tree{Stream: t.Stream, Size: t.Size, Root: base64.StdEncoding.EncodeToString(t.Root[:])})
	}
	for _, p := range report.Problems {
		out.Faults = append(out.Faults, p.String())
	}
	return out, nil
}

func (s *Service) position(ctx context.Context, _ rpc.Caller, _ ask.Position) (ask.Cursor, error) {
	control, err := s.store.Cursor(ctx, string(schemas.Control))
	if err != nil {
		return ask.Cursor{}, err
	}
	activity, err := s.store.Cursor(ctx, string(schemas.Activity))
	return ask.Cursor{Control: control.Last, Activity: activity.Last}, err
}
