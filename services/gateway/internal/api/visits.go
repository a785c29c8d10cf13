package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Bounds of visits.
const (
	maxVisitStreams = 512 // of this gateway
	maxOpening      = 64 << 10
	openingWithin   = 10 * time.Second
	writeVisit      = 10 * time.Second
	lookAtMember    = 2 * time.Second
	partWithin      = 5 * time.Second // for the last word to arrive
)

// upgrader takes WebSockets of programs, which name no origin, and of pages of this host alone.
var upgrader = websocket.Upgrader{HandshakeTimeout: openingWithin}

type visitInput struct {
	Way      visit.Way `json:"way"`
	Volume   string    `json:"volume,omitempty"` // default: main
	Session  string    `json:"session,omitempty"`
	Argv     []string  `json:"argv,omitempty"`
	Terminal bool      `json:"terminal,omitempty"`
	Term     string    `json:"term,omitempty"`
	Port     int       `json:"port,omitempty"`
}

func (a *API) admitVisit(r *http.Request, who auth.Identity, body []byte) (ask.AdmittedVisit, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.AdmittedVisit{}, err
	}
	in, err := read[visitInput](r, body)
	if err != nil {
		return ask.AdmittedVisit{}, err
	}
	q := ask.AdmitVisit{Way: in.Way, Environment: name, Volume: in.Volume, Argv: in.Argv, Terminal: in.Terminal, Term: in.Term, Port: in.Port}
	if in.Session != "" {
		if q.Session, err = parsed[id.Session](in.Session); err != nil {
			return ask.AdmittedVisit{}, err
		}
	}
	return a.Peers.AdmitVisit(r.Context(), who, q)
}

// visitStream is a WebSocket (RFC 6455): first a text message with a connector.OpenVisit, answered by one with what was opened, or a
// problem; then the binary messages of libs/duplex both ways, which are passed on as they are. A text message later on is a
// problem, and the last.
func (a *API) visitStream(w http.ResponseWriter, r *http.Request, who auth.Identity, _ []byte) error {
	name, err := named[id.Environment](r)
	if err != nil {
		return err
	}
	if who.Session() {
		return problem.New(problem.Denied, "a visit is made with an access token, not from a page") // a browser opens WebSockets for any page
	}
	if a.visits.Add(1) > maxVisitStreams {
		a.visits.Add(-1)
		return problem.New(problem.Busy, "%d connections of visits are open, which is the most", maxVisitStreams)
	}
	defer a.visits.Add(-1)
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil // it has answered
	}
	defer conn.Close()
	conn.SetReadLimit(maxOpening)
	if err := a.joinVisit(r, conn, who, name); err != nil && lastWord(conn, err) {
		for err = nil; err == nil; { // what is on its way still: a connection that is closed over it takes the last word along
			_, _, err = conn.NextReader()
		}
	}
	return nil
}

func write(conn *websocket.Conn, kind int, message []byte) error {
	_ = conn.SetWriteDeadline(time.Now().Add(writeVisit)) // one that is gone says so when it is written to
	return conn.WriteMessage(kind, message)
}

// lastWord says why there is no more. Whoever asked may be gone; else they close the connection soon.
func lastWord(conn *websocket.Conn, err error) bool {
	raw, marshalErr := json.Marshal(problem.DetailOf(err))
	if marshalErr != nil || write(conn, websocket.TextMessage, raw) != nil {
		return false
	}
	closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	return conn.WriteControl(websocket.CloseMessage, closing, time.Now().Add(writeVisit)) == nil && conn.SetReadDeadline(time.Now().Add(partWithin)) == nil
}

// joinVisit opens a stream and carries it until one of its sides is gone, which is no error, or the member may not any more.
func (a *API) joinVisit(r *http.Request, conn *websocket.Conn, who auth.Identity, env id.Environment) error {
	open, err := opening(r.Context(), conn)
	if err != nil {
		return err
	}
	var v connector.Visit
	if err := json.Unmarshal(open.Visit, &v); err != nil {
		return problem.Wrap(err, problem.Invalid, "the visit cannot be read")
	}
	if _, err := id.Parse[id.Visit](string(v.Visit)); err != nil || v.Actor != who.Caller().Actor { // it names a subject
		return problem.New(problem.Denied, "this visit is somebody else's")
	}
	back, err := a.Peers.HearVisit(who, env, v.Visit, open.Stream)
	if err != nil {
		return err
	}
	defer func() { _ = back.Unsubscribe() }() // a connection that is gone has none
	to, err := a.Peers.OpenVisit(r.Context(), who, ask.OpenVisit{Environment: env, Open: open})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(to)
	if err != nil {
		return err
	}
	if write(conn, websocket.TextMessage, raw) != nil {
		return nil
	}
	conn.SetReadLimit(duplex.MaxFrame)
	ctx, cut := context.WithCancelCause(r.Context())
	defer cut(nil)
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { cut(nil); ended <- struct{}{} }()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil || kind != websocket.BinaryMessage {
				return
			}
			if ctx.Err() == nil { // after that it is read so that the last word arrives
				a.Peers.TellVisit(who, env, to, open.Stream, message)
			}
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		tick := time.NewTicker(lookAtMember)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := a.stillMay(r); err != nil {
				a.Peers.TellVisit(who, env, to, open.Stream, connector.VisitOver)
				cut(err)
				return
			}
		}
	}()
	for {
		m, err := back.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrSlowConsumer) {
			continue // the machine sends again what found no room
		}
		if err != nil || len(m.Data) > duplex.MaxFrame || write(conn, websocket.BinaryMessage, m.Data) != nil {
			break
		}
	}
	lost := context.Cause(ctx)
	cut(nil)
	if why := problem.CodeOf(lost); why != problem.Unauthenticated && why != problem.Denied || !lastWord(conn, lost) {
		_ = conn.Close() // ends what reads it
	}
	<-ended
	<-ended
	return nil
}

// stillMay says whether whoever asked may still come onto machines. That it cannot be found out ends nothing.
func (a *API) stillMay(r *http.Request) error {
	who, err := a.Gate.Identify(r)
	switch {
	case problem.CodeOf(err) == problem.Unauthenticated:
		return err
	case err == nil && !who.Role.MayConfigure():
		return problem.New(problem.Denied, "a %s may not come onto machines", who.Role)
	}
	return nil
}

func opening(ctx context.Context, conn *websocket.Conn) (open connector.OpenVisit, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(openingWithin))                              // one that is gone says so when it is read
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })() // the same
	kind, raw, err := conn.ReadMessage()
	if err != nil || kind != websocket.TextMessage || json.Unmarshal(raw, &open) != nil || open.Stream < 0 {
		return open, problem.New(problem.Invalid, "the first message is not what opens a visit")
	}
	return open, conn.SetReadDeadline(time.Time{})
}
