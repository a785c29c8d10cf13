package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// exchange is what goes over the wire for one call. The SDK takes a result apart and puts it together again as it knows
// it: numbers become floats, and what it does not know is lost. It also tells the log lines of all calls of a session
// without saying whose they are. So the call's own messages are read along.
type exchange struct {
	method  string      // of the request
	headers http.Header // that it has besides
	say     func(upstream.News)
	client  *upstream.Client // nil: nobody is passed anything
	asks    *asks            // of the session, where the client can be asked
	over    func() error     // why the call is given up, of a program's; set before it is written

	mu     sync.Mutex
	id     string          // of the request
	result json.RawMessage // nil until it came
}

type exchangeKey struct{}

// sent notes the request of the call, and says whether a message is that.
func (x *exchange) sent(raw []byte) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Method != x.method {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.id = string(m.ID)
	return true
}

// wasSent says whether the request was written.
func (x *exchange) wasSent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id != ""
}

// got takes one message of the server.
func (x *exchange) got(raw []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return // the SDK says so
	}
	switch {
	case m.Method == "":
		x.mu.Lock()
		defer x.mu.Unlock()
		if m.Result != nil && string(m.ID) == x.id {
			x.result = bytes.Clone(m.Result)
		}
	case m.ID != nil:
		x.asks.came(m.Method, x)
	case x.client != nil:
		if passedOn[m.Method] {
			x.client.Say(m.Method, bytes.Clone(m.Params))
		}
	default:
		x.tell(m.Method, m.Params)
	}
}

// passedOn are the notifications that a client is given during its request.
var passedOn = map[string]bool{"notifications/progress": true, "notifications/message": true, "notifications/elicitation/complete": true}

// tell says what a call does, to whoever follows it.
func (x *exchange) tell(method string, params json.RawMessage) {
	var p struct {
		Progress float64         `json:"progress"`
		Total    float64         `json:"total"`
		Message  string          `json:"message"`
		Level    string          `json:"level"`
		Data     json.RawMessage `json:"data"`
	}
	if x.say == nil || json.Unmarshal(params, &p) != nil {
		return
	}
	switch method {
	case "notifications/progress":
		x.say(upstream.News{Progress: p.Progress, Total: p.Total, Message: p.Message})
	case "notifications/message":
		var text string
		if json.Unmarshal(p.Data, &text) != nil {
			text = string(p.Data)
		}
		if p.Level == "" {
			p.Level = "info"
		}
		x.say(upstream.News{Level: p.Level, Message: text})
	}
}

// parts are the members of a result that are passed on, as they came: all but those that say what sort of result it is.
func (x *exchange) parts() map[string]json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all map[string]json.RawMessage
	if x.result == nil || json.Unmarshal(x.result, &all) != nil {
		return nil
	}
	if x.client == nil { // a hosted agent's model has no use for what a protocol adds
		maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
			return name != "content" && name != "structuredContent" && name != "_meta"
		})
		return all
	}
	delete(all, "isError") // the outcome says so
	if string(all["resultType"]) == `"complete"` {
		delete(all, "resultType")
	}
	return all
}

// wire is a way out that lets exchanges read along.
type wire struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return w.next.RoundTrip(r)
	}
	switch body, ok := bodyOf(r); {
	case ok && x.sent(body):
		if len(x.headers) > 0 && r.Header.Get("Mcp-Method") != "" { // of the protocol that has them
			r = r.Clone(r.Context())
			maps.Copy(r.Header, x.headers)
		}
	case ok || r.Method != http.MethodPost:
		// The SDK's own, such as the news that the call was given up, or the rest of a stream that broke off: what the server says
		// to it is not said of the call.
		r = r.WithContext(upstream.Unwatched(r.Context()))
	}
	ctx, end := x.outlive(r.Context())
	resp, err := w.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &along{ReadCloser: &closing{resp.Body, end}, x: x, events: strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")}
	return resp, nil
}

// bodyOf is the message that a request sends.
func bodyOf(r *http.Request) ([]byte, bool) {
	if r.Method != http.MethodPost || r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	defer body.Close()
	raw, _ := io.ReadAll(body) // it is in memory
	return raw, true
}

// lingering is how long the rest of an answer is read after its result came.
const lingering = time.Second

// outlive gives a context that ends with another, but a moment later once the result came: a stream that is cut off between
// its last message and its end costs the next call a new connection.
func (x *exchange) outlive(ctx context.Context) (context.Context, func()) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if x.raw() != nil {
			late := time.AfterFunc(lingering, func() { cancel(context.Cause(ctx)) })
			context.AfterFunc(own, func() { late.Stop() })
			return
		}
		cancel(context.Cause(ctx))
	})
	return own, func() { stop(); cancel(context.Canceled) }
}

// maxMessage is the largest message that is read along, in bytes. A larger one is what the SDK makes of it.
const maxMessage = 4 << 20

// along is a body that is read along: one JSON message, or a stream of events.
type along struct {
	io.ReadCloser
	x      *exchange
	events bool
	line   []byte // of the stream, that is not complete
	data   []byte // of the event, or of the whole body
	over   bool   // the message is too large
}

func (a *along) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if !a.events {
		a.add(&a.data, p[:n])
		if err != nil {
			a.end()
		}
		return n, err
	}
	rest := p[:n]
	for len(rest) > 0 {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			a.add(&a.line, rest)
			break
		}
		a.add(&a.line, rest[:i])
		rest = rest[i+1:]
		a.field(bytes.TrimSuffix(a.line, []byte("\r")))
		a.line = a.line[:0]
	}
	if err != nil {
		a.end()
	}
	return n, err
}

func (a *along) add(to *[]byte, more []byte) {
	if len(*to)+len(more) > maxMessage {
		a.over = true
		return
	}
	*to = append(*to, more...)
}

// field takes one line of an event (the HTML standard, section 9.2.6).
func (a *along) field(line []byte) {
	if len(line) == 0 {
		a.end()
		return
	}
	if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if len(a.data) > 0 {
			a.add(&a.data, []byte("\n"))
		}
		a.add(&a.data, bytes.TrimPrefix(value, []byte(" ")))
	}
}

func (a *along) end() {
	if len(a.data) > 0 && !a.over {
		a.x.got(a.data)
	}
	a.data, a.over = a.data[:0], false
}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// raw is the whole result, nil when it did not come or was too large to read along.
func (x *exchange) raw() json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result
}
