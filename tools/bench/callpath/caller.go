package callpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

var args = json.RawMessage(`{"text":"how much does a call cost"}`)

const (
	callLife = 30 * time.Second
	pollWait = time.Second // a hint that does not come for so long may be lost
)

// caller asks for calls, one at a time, as the agent loop does.
type caller struct {
	conn  *bus.Conn
	log   *eventlog.Log
	agent id.Agent
	hint  string
	hints *nats.Subscription
	run   id.Run
	calls int
}

func newCaller(conn *bus.Conn, agent id.Agent, n int) (*caller, error) {
	hint := bus.HintSubject(conn.User(), conn.Instance(), strconv.Itoa(n))
	hints, err := conn.NC.SubscribeSync(hint)
	if err != nil {
		return nil, fmt.Errorf("hints of the whole path: %w", err)
	}
	return &caller{conn: conn, log: eventlog.New(conn), agent: agent, hint: hint, hints: hints}, nil
}

// call makes one call and checks that it ended as want says.
func (c *caller) call(ctx context.Context, tool string, want func(schemas.Event) bool) error {
	p, err := c.ask(ctx, tool)
	if err != nil {
		return err
	}
	outcome, err := c.await(ctx, p)
	if err != nil {
		return err
	}
	if !want(outcome) {
		return fmt.Errorf("the call of %s ended as %s: %+v", tool, outcome.Kind(), outcome)
	}
	return nil
}

// pending is a call that was asked for.
type pending struct {
	call id.Call
	run  id.Run
	seq  uint64
}

func (c *caller) ask(ctx context.Context, tool string) (pending, error) {
	if c.calls%callsPerRun == 0 {
		c.run = id.New[id.Run]()
	}
	c.calls++
	p := pending{call: id.New[id.Call](), run: c.run}
	var err error
	p.seq, err = c.log.Append(ctx, eventlog.Draft{Tenant: tenant, Key: string(c.run), Run: c.run, Actor: string(c.agent), Event: call.Requested{
		Call: p.call, Run: c.run, Agent: c.agent, Tool: tool, ArgsDigest: permit.Digest(args), Effect: string(p.call),
		NotAfter: time.Now().Add(callLife).UTC(), Hint: c.hint, Body: call.Args{Args: args},
	}})
	return p, err
}

// await gives a call's outcome as it is stored, once there is word of it.
func (c *caller) await(ctx context.Context, p pending) (schemas.Event, error) {
	for ctx.Err() == nil {
		m, err := c.hints.NextMsg(pollWait)
		if errors.Is(err, nats.ErrTimeout) {
			state, err := calls.Read(ctx, c.log, tenant, p.run, p.call, p.seq)
			if err != nil || state.Outcome != nil {
				return state.Outcome, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		var h bus.Hint
		if err := json.Unmarshal(m.Data, &h); err != nil {
			return nil, fmt.Errorf("hint: %w", err)
		}
		if h.Call != p.call {
			continue // of an earlier call, whose outcome a poll found first
		}
		return c.outcome(ctx, p, h.Seq)
	}
	return nil, ctx.Err()
}

// outcome reads what a hint pointed to, which may be anything: hints prove nothing.
func (c *caller) outcome(ctx context.Context, p pending, seq uint64) (schemas.Event, error) {
	s, err := c.log.ReadAt(ctx, schemas.Activity, seq)
	if err != nil {
		return nil, err
	}
	ev, err := s.Envelope.Decode()
	if err != nil {
		return nil, err
	}
	set := calls.Set{}
	set.Apply(s.Seq, ev)
	if state := set[p.call]; s.At.Tenant == tenant && state != nil && state.Outcome != nil {
		return state.Outcome, nil
	}
	return nil, fmt.Errorf("a hint of %s led to %s at %d", p.call, ev.Kind(), seq)
}

func finished(ev schemas.Event) bool {
	f, ok := ev.(call.Finished)
	return ok && !f.ToolError
}

func unattached(ev schemas.Event) bool {
	f, ok := ev.(call.Failed)
	return ok && f.Code == "unavailable"
}

func cancelled(ev schemas.Event) bool {
	_, ok := ev.(call.Cancelled)
	return ok
}
