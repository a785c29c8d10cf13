package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/visit"
)

// Visit asks to come onto a machine.
type Visit struct {
	Way      visit.Way `json:"way"`
	Volume   string    `json:"volume,omitempty"` // default: main
	Session  string    `json:"session,omitempty"`
	Argv     []string  `json:"argv,omitempty"`
	Terminal bool      `json:"terminal,omitempty"`
	Term     string    `json:"term,omitempty"`
	Port     int       `json:"port,omitempty"`
}

// AdmitVisit has a visit decided and recorded.
func (c *Client) AdmitVisit(ctx context.Context, env string, v Visit) (ask.AdmittedVisit, error) {
	return send[ask.AdmittedVisit](ctx, c, http.MethodPost, environmentPath(env)+"/visits", nil, v)
}

// Bounds of a visit's stream.
const (
	visitQueue = 1024 // messages that wait for the network; what finds no room is sent again
	visitAgain = time.Second
	maxVisit   = 64 << 10
	visitMeets = 30 * time.Second // for the handshake
)

// VisitStream joins one stream of a visit, and keeps it joined over every loss of the network, until ctx ends. opened is called
// when it is there for the first time, cut at each loss. What it returns is why it cannot be there any more; nil: ctx ended.
func (c *Client) VisitStream(ctx context.Context, env string, v ask.AdmittedVisit, open connector.OpenVisit, end *duplex.End, opened func(), cut func(error)) error {
	open.Visit, open.Permit = v.Spec, v.Permit
	first, seen := true, time.Now()
	ctx, cancel := context.WithCancel(ctx)
	running := make(chan struct{})
	go func() { defer close(running); end.Run(ctx) }()
	defer func() { cancel(); <-running }()
	for ctx.Err() == nil {
		open.Received, _ = end.At()
		conn, err := c.openVisit(ctx, env, open)
		switch code := problem.CodeOf(err); {
		case err == nil:
			if first {
				first = false
				opened()
			}
			err = carry(ctx, conn, end)
			seen = time.Now()
			if ctx.Err() != nil {
				return nil
			}
			if problem.CodeOf(err) != problem.Unavailable {
				return err
			}
			cut(err)
		case ctx.Err() != nil:
			return nil
		case first || code != problem.Unavailable && code != problem.Timeout && code != problem.Busy, time.Since(seen) > connector.VisitAway:
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(visitAgain):
		}
	}
	return nil
}

func (c *Client) openVisit(ctx context.Context, env string, open connector.OpenVisit) (*websocket.Conn, error) {
	at := c.base.JoinPath(environmentPath(env) + "/visits")
	at.Scheme = map[string]string{"http": "ws", "https": "wss"}[at.Scheme]
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: visitMeets}
	conn, resp, err := dialer.DialContext(ctx, at.String(), http.Header{"Authorization": {"Bearer " + c.token}, "User-Agent": {c.agent}})
	if err != nil {
		if resp != nil && resp.StatusCode >= http.StatusBadRequest {
			defer resp.Body.Close()
			return nil, c.refused(resp)
		}
		return nil, c.unreachable(ctx, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // it knows of no context
	conn.SetReadLimit(maxVisit)
	raw, err := json.Marshal(open)
	if err == nil {
		err = conn.WriteMessage(websocket.TextMessage, raw)
	}
	var answer []byte
	if err == nil {
		_, answer, err = conn.ReadMessage()
	}
	if err != nil {
		_ = conn.Close()
		return nil, c.unreachable(ctx, err)
	}
	if err := problemIn(answer); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// problemIn reads a problem out of a text message, if it is one.
func problemIn(raw []byte) error {
	var d problem.Detail
	if json.Unmarshal(raw, &d) == nil && d.Code.Known() {
		return d.Err()
	}
	return nil
}

// carry passes messages on both ways until the connection is cut, which is unavailable, ctx ends, or the server says why not.
func carry(ctx context.Context, conn *websocket.Conn, end *duplex.End) error {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan []byte, visitQueue)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for {
			select {
			case <-ctx.Done():
				return
			case message := <-out:
				if conn.WriteMessage(websocket.BinaryMessage, message) != nil {
					cancel()
					return
				}
			}
		}
	}()
	defer func() { cancel(); _ = conn.Close(); <-wrote }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	full := problem.New(problem.Busy, "the network is slower than what is sent")
	end.Bind(func(message []byte) error {
		select {
		case out <- message:
			return nil
		default:
			return full
		}
	})
	for {
		kind, message, err := conn.ReadMessage()
		switch {
		case err != nil:
			return problem.Wrap(err, problem.Unavailable, "the connection was cut")
		case kind == websocket.TextMessage:
			return problemIn(message)
		}
		end.Take(message)
	}
}
