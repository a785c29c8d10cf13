package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

func cursor(text string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) > 200 {
		return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server"}
	}
	return string(raw), nil
}

// listWithin is how long the broker may take to ask servers.
const listWithin = 8 * time.Second

// list asks the broker for a page of what servers have, and where the next begins.
func (e *Endpoint) list(ctx context.Context, c *conversation, r mcp.Request, method, at string) (items []json.RawMessage, next string, err error) {
	found, err := e.ask(ctx, c, r, method, at)
	if err != nil {
		return nil, "", err
	}
	items = []json.RawMessage{}
	for _, item := range found.Items {
		items = append(items, e.named(c, method, item))
	}
	if found.Rest {
		skip, _ := cursor(at) // it was read before
		n, _ := atoi(skip)
		next = base64.RawURLEncoding.EncodeToString([]byte(itoa(n + len(found.Items))))
	}
	return items, next, nil
}

func (e *Endpoint) ask(ctx context.Context, c *conversation, r mcp.Request, method, at string) (ask.ForClient, error) {
	text, err := cursor(at)
	if err != nil {
		return ask.ForClient{}, err
	}
	skip, err := atoi(text)
	if err != nil {
		return ask.ForClient{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server"}
	}
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	return question[ask.ForClient](ctx, e, c, "client_list",
		ask.ListForClient{Agent: c.who.Agent, Run: c.current(), Connection: c.connection, Method: method, Client: client(r), Skip: skip})
}

// question asks the broker for a page of a list, a search, or a look-up of whose something is. Each is counted like a call of the
// agent's: for many of them the broker asks every server that there is.
func question[T any](ctx context.Context, e *Endpoint, c *conversation, method string, q any) (answer T, err error) {
	leave, err := e.sessions.enter(c.who, e.Limits, time.Now())
	if err != nil {
		return answer, err
	}
	defer leave()
	return rpc.Ask[T](ctx, e.Conn, schemas.Toolbroker, method, c.who.Caller(), q)
}

// named puts the connection in front of a prompt's name where more than one connection is served. A resource's URI is its own.
func (e *Endpoint) named(c *conversation, method string, item ask.ClientItem) json.RawMessage {
	if c.connection != "" || method != "prompts/list" {
		return item.Item
	}
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(item.Item, &all) != nil || json.Unmarshal(all["name"], &name) != nil || len(name) > maxFull {
		return item.Item
	}
	all["name"], _ = json.Marshal(c.names.of(item.Connection + "." + name))
	raw, err := json.Marshal(all)
	if err != nil {
		return item.Item
	}
	return raw
}

// owner finds whose a resource or prompt is, and what it is called there. Of one connection all is its own.
func (e *Endpoint) owner(ctx context.Context, c *conversation, r mcp.Request, list, member, value string) (con, own string, err error) {
	if c.connection != "" {
		return c.connection, value, nil
	}
	if member == "name" {
		full, ok, err := c.find(value, func() error { return e.everyPrompt(ctx, c, r) })
		if err != nil {
			return "", "", err
		}
		if !ok {
			return "", "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown prompt " + clip(value)}
		}
		con, own, _ = cutName(full)
		return con, own, nil
	}
	for at := ""; ; {
		found, err := e.ask(ctx, c, r, list, at)
		if err != nil {
			return "", "", err
		}
		for _, item := range found.Items {
			if textOf(item.Item, member) == value {
				return item.Connection, value, nil
			}
		}
		if !found.Rest {
			break
		}
		skip, _ := cursor(at)
		n, _ := atoi(skip)
		at = base64.RawURLEncoding.EncodeToString([]byte(itoa(n + len(found.Items))))
	}
	// It may be one of a template. Where only one server has any, it is that server's.
	found, err := e.ask(ctx, c, r, "resources/templates/list", "")
	if err != nil {
		return "", "", err
	}
	for _, item := range found.Items {
		if con != "" && con != item.Connection {
			return "", "", problem.New(problem.Conflict, "several connections have resource templates; read this one at %s", e.Site.URL("/mcp/c/NAME", nil))
		}
		con = item.Connection
	}
	if con == "" {
		return "", "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "resource not found: " + clip(value)}
	}
	return con, value, nil
}

// everyPrompt has the name of every prompt said.
func (e *Endpoint) everyPrompt(ctx context.Context, c *conversation, r mcp.Request) error {
	for at, rest := "", true; rest; {
		_, next, err := e.list(ctx, c, r, "prompts/list", at)
		if err != nil {
			return err
		}
		at, rest = next, next != ""
	}
	return nil
}
