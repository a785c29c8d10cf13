package runtime

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// maxQuery is the longest query that is asked and recorded, in bytes.
const maxQuery = 1 << 10

// SearchTools implements sandbox.Host: what the script is told is recorded first, and told again when it is run again.
// Grants are looked at afresh on every call, so what it was told once does no harm.
func (h *host) SearchTools(ctx context.Context, q sandbox.Search) (json.RawMessage, error) {
	earlier, err := h.earlier(ctx)
	if err != nil {
		return nil, sandbox.Abort(err)
	}
	if err := h.order.askElse(q.Seq, aSearch); err != nil {
		return nil, err
	}
	now := script.Searched{Call: h.w.Admitted.Call, Run: h.w.Admitted.Run, Seq: q.Seq, Body: script.Told{Query: cut(q.Query, maxQuery), Tool: cut(q.Tool, maxQuery)}}
	if e, ok := earlier.searched[q.Seq]; ok {
		before, err := restored[script.Searched](ctx, h.s.deps.Log, e)
		switch {
		case err != nil:
			return nil, sandbox.Abort(err)
		case before.Body.Query != now.Body.Query || before.Body.Tool != now.Body.Tool:
			return nil, diverged("request %d was another search before", q.Seq)
		}
		return inTurn(ctx, h.order, q.Seq, func() (json.RawMessage, error) { return told(before) })
	}
	now.Body.Answer, err = h.lookUp(ctx, now.Body, q.Limit)
	switch code := problem.CodeOf(err); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case code == problem.Invalid || code == problem.NotFound || code == problem.TooLarge:
		now.Code, now.Body.Message = string(code), problem.DetailOf(err).Message
	case err != nil:
		return nil, sandbox.Abort(err) // the broker does not answer: the script is run again
	}
	if _, err := h.s.deps.Log.Append(ctx, h.draft(now, strconv.Itoa(q.Seq))); err != nil {
		return nil, sandbox.Abort(err)
	}
	return inTurn(ctx, h.order, q.Seq, func() (json.RawMessage, error) { return told(now) })
}

func (h *host) lookUp(ctx context.Context, t script.Told, limit int) (json.RawMessage, error) {
	who, a, run := rpc.Caller{Tenant: h.w.Tenant, Actor: actor}, h.w.Requested.Agent, h.w.Admitted.Run
	if t.Tool != "" {
		found, err := rpc.Ask[ask.DescribedTool](ctx, h.s.deps.Conn, schemas.Toolbroker, "tool_describe", who, ask.DescribeTool{Agent: a, Run: run, Name: t.Tool})
		if err != nil {
			return nil, err
		}
		return json.Marshal(found)
	}
	found, err := rpc.Ask[ask.FoundTools](ctx, h.s.deps.Conn, schemas.Toolbroker, "tools_search", who, ask.SearchTools{Agent: a, Run: run, Query: t.Query, Limit: limit})
	if err != nil {
		return nil, err
	}
	return json.Marshal(found.Tools)
}

func told(s script.Searched) (json.RawMessage, error) {
	if s.Code != "" {
		return nil, problem.New(problem.Code(s.Code), "%s", s.Body.Message)
	}
	return s.Body.Answer, nil
}

// cut shortens s to at most n bytes, at a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
