package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// actWithin is how long what a client does to a task waits to be recorded.
const actWithin = 3 * time.Second

// answerTask passes on what the client answered to what its task asked. Of a key that asks nothing, or nothing any more, nothing is
// taken. It returns when the answers are recorded, so that the client sees them in the task.
func (e *Endpoint) answerTask(ctx context.Context, c *conversation, r mcp.Request, at standing, given map[string]json.RawMessage) error {
	k, err := e.look(ctx, c, at)
	if err != nil {
		return err
	}
	open := e.questions(c, r, k)
	var sent []int
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, asked := open[key]; !asked {
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(given[key], &object) != nil || object == nil {
			return problem.New(problem.Invalid, "the answer to %.40q is no JSON object", key)
		}
		if key == approvalKey {
			c.show(at.call) // what the client says decides nothing
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(key, askPrefix))
		if err != nil {
			continue
		}
		raw, err := json.Marshal(executor.Answer{Ask: n, Relayed: executor.Relayed{Result: given[key]}})
		if err != nil {
			return problem.Wrap(err, problem.Invalid, "the answer to %.40q cannot be read", key)
		}
		if len(raw) > executor.MaxAnswer { // nobody would take it, and the question would be asked for ever
			return problem.New(problem.TooLarge, "the answer to %.40q is %d bytes as it is passed on, over %d", key, len(raw), executor.MaxAnswer)
		}
		if err := e.Conn.NC.Publish(e.down(c, at), raw); err != nil {
			return problem.Wrap(err, problem.Unavailable, "the answer cannot be passed on now")
		}
		sent = append(sent, n)
	}
	if len(sent) == 0 {
		return nil
	}
	return e.until(ctx, c, at, func(k *task) (bool, error) {
		return k.state.Outcome != nil || !slices.ContainsFunc(sent, func(n int) bool { _, open := k.asked[n]; return open }), nil
	})
}

// cancelTask has a task's call end: what waits for a person is withdrawn, what runs is given up. It returns when the call has
// ended, or has been told to. Problems: pending when nobody could be told.
func (e *Endpoint) cancelTask(ctx context.Context, c *conversation, at standing) error {
	var why error
	err := e.until(ctx, c, at, func(k *task) (bool, error) {
		switch {
		case k.state.Outcome != nil:
			return true, nil
		case k.waits():
			// Whoever approves at the same moment wins or loses; then it is looked at again.
			_, why = rpc.Ask[ask.Withdrawn](ctx, e.Conn, schemas.Approvals, "approval_withdraw", c.who.Caller(), ask.WithdrawApproval{Approval: approvalOf(c, at, k.state.Held)})
		case k.state.Admitted != nil:
			why = nil
			e.giveUp(c, at)
		default:
			why = problem.New(problem.Pending, "it is not decided whether the call is made; cancel it again")
		}
		return false, nil
	})
	if err != nil || why == nil || ctx.Err() != nil {
		return err
	}
	if k, err := e.look(ctx, c, at); err == nil && k.state.Outcome != nil {
		return nil
	}
	return problem.Wrap(why, problem.Pending, "the call waits still; cancel it again: %s", problem.DetailOf(why).Message)
}

// until looks at a task now and then until it is as wanted, for a while.
func (e *Endpoint) until(ctx context.Context, c *conversation, at standing, wanted func(*task) (bool, error)) error {
	within, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	ticker := time.NewTicker(poll / 4)
	defer ticker.Stop()
	for {
		k, err := e.look(ctx, c, at)
		if err != nil {
			return err
		}
		if done, err := wanted(k); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-within.Done():
			return ctx.Err()
		}
	}
}

// down is where executors hear what becomes of a call at its client's end.
func (e *Endpoint) down(c *conversation, at standing) string {
	return bus.LiveSubject(string(c.who.Tenant) + "." + string(at.call) + ".down")
}

func approvalOf(c *conversation, at standing, h *call.Held) id.Approval {
	return id.Derive[id.Approval](string(c.who.Tenant), string(at.call), h.Digest)
}

func (e *Endpoint) approvalLink(c *conversation, at standing, h *call.Held) string {
	return e.Site.URL("/approvals/"+string(approvalOf(c, at, h)), nil)
}
