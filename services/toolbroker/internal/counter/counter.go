// Package counter counts the calls that limited grants let through. A place is reserved before the call is admitted, by
// compare-and-swap, so that of two brokers that race for the last one only one gets it. What is reserved stays
// reserved: a call that is refused later, or never made, has used its place. A place among the calls at once is free
// again when its call has an outcome, which is looked up when somebody wants it: so nobody has to give it back, and
// no crash can keep it.
package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// maxRecent is how many calls a counter remembers, to know a decision that is taken again after a crash.
const maxRecent = 64

// maxTries bounds the races that one reservation loses.
const maxTries = 50

// Counters counts for all tenants.
type Counters struct {
	kv    jetstream.KeyValue
	ended func(context.Context, Call) (bool, error)
	now   func() time.Time
}

// Open opens the counters. ended says whether a call has its outcome.
func Open(ctx context.Context, conn *bus.Conn, ended func(context.Context, Call) (bool, error)) (*Counters, error) {
	kv, err := conn.JS.KeyValue(ctx, bus.CountersBucket)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the counters bucket is not there; is the bus provisioned?")
	}
	return &Counters{kv: kv, ended: ended, now: time.Now}, nil
}

// Call is what a place is reserved for.
type Call struct {
	Tenant id.Tenant
	Grant  id.Grant
	Run    id.Run
	Call   id.Call
	Seq    uint64 // of the request, on EW_ACTIVITY
}

// Reserve takes a place for a call within a grant's limits, once however often it is asked for the same call. It says
// which limit is reached when there is none.
func (c *Counters) Reserve(ctx context.Context, call Call, limits grant.Limits) (reached string, err error) {
	key := string(call.Tenant) + "." + string(call.Grant)
	// The run's place first: what it refuses has not used one of the grant's.
	if limits.PerRun > 0 {
		reached, err = c.take(ctx, key+"."+string(call.Run), call, func(s *state) (string, error) {
			if s.Calls >= limits.PerRun {
				return fmt.Sprintf("the grant's %d calls of this run are used up", limits.PerRun), nil
			}
			return "", nil
		})
		if err != nil || reached != "" {
			return reached, err
		}
	}
	if limits.Calls == 0 && limits.PerMinute == 0 && limits.AtOnce == 0 {
		return "", nil
	}
	return c.take(ctx, key, call, func(s *state) (string, error) {
		switch {
		case limits.Calls > 0 && s.Calls >= limits.Calls:
			return fmt.Sprintf("the grant's %d calls are used up", limits.Calls), nil
		case limits.PerMinute > 0 && s.InMinute >= limits.PerMinute:
			return fmt.Sprintf("the grant's %d calls of this minute are used up", limits.PerMinute), nil
		case limits.AtOnce > 0:
			return c.enter(ctx, s, call, limits.AtOnce)
		}
		return "", nil
	})
}

// enter adds a call to those at once. When there seem to be as many as may be, those that have ended make room.
func (c *Counters) enter(ctx context.Context, s *state, call Call, most int) (reached string, err error) {
	if len(s.Open) >= most {
		var open []openCall
		for _, o := range s.Open {
			ended, err := c.ended(ctx, Call{Tenant: call.Tenant, Grant: call.Grant, Run: o.Run, Call: o.Call, Seq: o.Seq})
			if err != nil {
				return "", err
			}
			if !ended {
				open = append(open, o)
			}
		}
		s.Open = open
	}
	if len(s.Open) >= most {
		return fmt.Sprintf("%d calls under the grant are under way, as many as it allows at once; try again when one has ended", most), nil
	}
	s.Open = append(s.Open, openCall{call.Run, call.Call, call.Seq})
	return "", nil
}

// state is one counter.
type state struct {
	Calls    int        `json:"calls"`
	Minute   int64      `json:"minute"` // since 1970
	InMinute int        `json:"in_minute"`
	Recent   []id.Call  `json:"recent"`
	Open     []openCall `json:"open,omitempty"` // of a grant that limits the calls at once: no more than that
}

type openCall struct {
	Run  id.Run  `json:"run"`
	Call id.Call `json:"call"`
	Seq  uint64  `json:"seq"`
}

// take counts a call that has its place already, or for which place makes one. place says what limit is reached when
// there is none.
func (c *Counters) take(ctx context.Context, key string, call Call, place func(*state) (string, error)) (string, error) {
	for range maxTries {
		s, revision, err := c.read(ctx, key)
		if err != nil {
			return "", err
		}
		if slices.Contains(s.Recent, call.Call) || slices.Contains(s.Open, openCall{call.Run, call.Call, call.Seq}) {
			return "", nil
		}
		if minute := c.now().Unix() / 60; s.Minute != minute {
			s.Minute, s.InMinute = minute, 0
		}
		if reached, err := place(&s); err != nil || reached != "" {
			return reached, err
		}
		s.Calls++
		s.InMinute++
		s.Recent = append(s.Recent, call.Call)
		s.Recent = s.Recent[max(0, len(s.Recent)-maxRecent):]
		raw, err := json.Marshal(s)
		if err != nil {
			return "", problem.Wrap(err, problem.Internal, "the counter cannot be written")
		}
		if revision == 0 {
			_, err = c.kv.Create(ctx, key, raw)
		} else {
			_, err = c.kv.Update(ctx, key, raw, revision)
		}
		var refused *jetstream.APIError
		switch {
		case err == nil:
			// A crash here leaves the place reserved, and the call's name with it: the next hearing finds it.
			return "", nil
		case errors.Is(err, jetstream.ErrKeyExists), errors.As(err, &refused):
			continue // another call was faster
		default:
			// It may have been stored all the same; then the next reading finds the call.
			return "", problem.Wrap(err, problem.Unavailable, "no place can be reserved now")
		}
	}
	return "", problem.New(problem.Busy, "too many calls race for the grant's last places")
}

func (c *Counters) read(ctx context.Context, key string) (s state, revision uint64, err error) {
	entry, err := c.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return state{}, 0, nil
	}
	if err != nil {
		return state{}, 0, problem.Wrap(err, problem.Unavailable, "the counter cannot be read now")
	}
	if err := json.Unmarshal(entry.Value(), &s); err != nil {
		return state{}, 0, problem.Wrap(err, problem.Internal, "a counter is damaged")
	}
	return s, entry.Revision(), nil
}
