package mcp

import (
	"context"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// ticket names a call to its agent, so that whichever instance is given it finds the call on the stream.
func ticket(at standing) string {
	return string(at.call) + "." + string(at.run) + "." + strconv.FormatUint(at.seq, 10)
}

// find finds the call of a ticket. Another agent's, and one of a connection that is not served here, is not there. Problems:
// not_found, unavailable.
func (e *Endpoint) find(ctx context.Context, c *conversation, text string) (at standing, r call.Requested, err error) {
	none := problem.New(problem.NotFound, "the agent has no task of that id here")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return at, r, none
	}
	named, err := id.Parse[id.Call](parts[0])
	if err != nil {
		return at, r, none
	}
	talk, err := id.Parse[id.Conversation](parts[1])
	if err != nil {
		return at, r, none
	}
	seq, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil || seq == 0 {
		return at, r, none
	}
	stored, err := e.Log.ReadAt(ctx, schemas.Activity, seq)
	if problem.CodeOf(err) == problem.Unavailable {
		return at, r, err
	}
	if err != nil || stored.At.Tenant != c.who.Tenant || stored.At.Key != string(talk) {
		return at, r, none
	}
	r, err = eventlog.Decode[call.Requested](stored)
	if err != nil || r.Call != named || r.Agent != c.who.Agent || !c.served(connectionOf(r.Tool)) {
		return at, call.Requested{}, none
	}
	return standing{call: named, run: talk.Run(), seq: seq, tool: r.Tool}, r, nil
}
