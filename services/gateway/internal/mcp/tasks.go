package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/schemas/id"
)

// A task is a call: what a client polls is folded from what the stream says of that, and is nowhere else. So any instance
// answers, also one that was started since, and a task's end is the call's.

// tasksExtension is the extension of MCP 2026-07-28 by which a server answers a call with a task.
const tasksExtension = "io.modelcontextprotocol/tasks"

// taskParams are those of every request about a task.
type taskParams struct {
	mcp.ParamsBase
	Task           string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

type rawTask struct {
	mcp.ResultBase
	raw members
}

// MarshalJSON implements json.Marshaler.
func (r *rawTask) MarshalJSON() ([]byte, error) { return written(r.raw, r.Meta) }

// modernTasks are the methods of the extension.
var modernTasks = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// offerTasks has the SDK take requests about tasks, by the methods of the conversation's era. They are answered before it would.
func offerTasks(s *mcp.Server, c *conversation) {
	methods := modernTasks
	if c.session != "" {
		methods = []string{"tasks/get", "tasks/result", "tasks/cancel"}
	}
	for _, method := range methods {
		err := mcp.AddReceivingCustomMethod(s, method, func(context.Context, *mcp.ServerSession, *taskParams) (*rawTask, error) { return nil, errPlaceholder })
		if err != nil {
			panic(err) // a method of the SDK's own has the name: no version that this was built with
		}
	}
}

// taskMode is whether a call may be answered with a task.
type taskMode int

const (
	noTask  taskMode = iota
	offered          // the client takes one, and we say when (MCP 2026-07-28)
	wanted           // the client says that it is one (MCP 2025-11-25)
)

func taskModeOf(c *conversation, r mcp.Request) taskMode {
	switch {
	case c.session == "" && declaresTasks(r):
		return offered
	case c.session != "" && c.hasTasks() && wantsTask(r):
		return wanted
	}
	return noTask
}

// declaresTasks says whether the client of a request takes a task for an answer.
func declaresTasks(r mcp.Request) bool {
	caps, _ := metaOf(r)[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok
}

// aboutTask answers a request about a task.
func (e *Endpoint) aboutTask(ctx context.Context, c *conversation, method string, r mcp.Request, p *taskParams) (mcp.Result, error) {
	if p == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "taskId is missing"}
	}
	if c.session != "" {
		return e.aboutTaskOfSession(ctx, c, method, r, p)
	}
	if !declaresTasks(r) {
		return nil, errUndeclared
	}
	leave, err := e.sessions.poll(c.who, e.Limits, time.Now())
	if err != nil {
		return nil, err
	}
	defer leave()
	at, _, err := e.find(ctx, c, p.Task)
	if err != nil {
		return nil, err
	}
	out := members{"resultType": json.RawMessage(`"complete"`)}
	switch method {
	case "tasks/get":
		var k *task
		if k, err = e.look(ctx, c, at); err == nil {
			out, err = e.detailed(ctx, c, r, k)
		}
	case "tasks/update":
		err = e.answerTask(ctx, c, r, at, p.InputResponses)
	case "tasks/cancel":
		err = e.cancelTask(ctx, c, at)
	}
	if err != nil {
		return nil, err
	}
	return &rawTask{raw: out}, nil
}

// maxShown is how many calls of a conversation are remembered whose approval the client was shown.
const maxShown = 256

// show remembers that the client showed a person where to decide on a call. Another instance, or this one after a restart, shows it
// once more.
func (c *conversation) show(k id.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shown) >= maxShown {
		c.shown = c.shown[1:]
	}
	c.shown = append(c.shown, k)
}

func (c *conversation) showed(k id.Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.shown, k)
}
