package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/member"
)

// A visit's stream is a program's: no page of another origin opens one, nor does a page's session; and what begins otherwise than
// it has to is told why, and closed in order, or cut where it is too much to read.
func TestVisitStreamsThatAreRefused(t *testing.T) {
	h := start(t)
	at := "ws" + strings.TrimPrefix(h.base, "http") + "/v1/environments/box/visits"
	auditor := h.add(t, "auditor", member.Auditor)
	for name, c := range map[string]struct {
		header http.Header
		status int
	}{
		"another origin":   {http.Header{"Authorization": {"Bearer " + h.owner}, "Origin": {"https://evil.example"}}, 403},
		"a name beside it": {http.Header{"Authorization": {"Bearer " + h.owner}, "Origin": {h.base + ".evil.example"}}, 403},
		"nobody":           {http.Header{}, 401},
		"an auditor":       {http.Header{"Authorization": {"Bearer " + auditor.Secret}}, 403},
		"a page's session": {http.Header{"Cookie": {h.session(t).String()}, "Origin": {h.base}}, 403},
	} {
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), at, c.header)
		if err == nil {
			_ = conn.Close()
		}
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
	if got := h.call(t, h.owner, "GET", "/v1/environments/box/visits", ""); got.status != 400 {
		t.Errorf("no WebSocket: %+v", got)
	}
	const visit = `{"visit":"eyJ2aXNpdCI6InZzdF8xIiwiYWN0b3IiOiJtZW1fc29tZWJvZHkifQ==","stream":0}` // of mem_somebody
	for name, c := range map[string]struct {
		kind    int
		message string
		code    problem.Code
		closed  int
	}{
		"binary":          {websocket.BinaryMessage, visit, problem.Invalid, websocket.CloseNormalClosure},
		"no JSON":         {websocket.TextMessage, "{", problem.Invalid, websocket.CloseNormalClosure},
		"a stream below":  {websocket.TextMessage, `{"stream":-1}`, problem.Invalid, websocket.CloseNormalClosure},
		"no visit":        {websocket.TextMessage, `{"stream":0}`, problem.Invalid, websocket.CloseNormalClosure},
		"somebody else's": {websocket.TextMessage, visit, problem.Denied, websocket.CloseNormalClosure},
		"too much":        {websocket.TextMessage, `{"stream":0,"permit":"` + strings.Repeat("x", 64<<10) + `"}`, problem.Invalid, websocket.CloseMessageTooBig},
	} {
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), at, http.Header{"Authorization": {"Bearer " + h.owner}, "Origin": {h.base}})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteMessage(c.kind, []byte(c.message)); err != nil {
			t.Fatal(err)
		}
		if c.closed == websocket.CloseNormalClosure {
			// More of it is under way when the refusal comes: that arrives all the same.
			for range 4 {
				_ = conn.WriteMessage(websocket.BinaryMessage, make([]byte, 1000))
			}
			kind, raw, err := conn.ReadMessage()
			var d problem.Detail
			if err != nil || kind != websocket.TextMessage || json.Unmarshal(raw, &d) != nil || d.Code != c.code || d.Message == "" {
				t.Errorf("%s: %d %s, %v", name, kind, raw, err)
			}
		}
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, c.closed) {
			t.Errorf("%s: closed with %v", name, err)
		}
		_ = conn.Close()
	}
}
