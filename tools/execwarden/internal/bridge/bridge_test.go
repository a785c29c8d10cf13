package bridge

//lint:file-ignore SA1019 the protocol's older parts are carried as long as there are clients that use them

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ends is a client's end of a bridge.
type ends struct {
	t     *testing.T
	in    *io.PipeWriter // to the bridge
	out   *bufio.Scanner // from it
	outR  *io.PipeReader
	notes chan string
	ended chan error
	once  sync.Once
	err   error
}

func start(t *testing.T, url string) *ends {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	e := &ends{t: t, in: inW, out: bufio.NewScanner(outR), outR: outR, notes: make(chan string, 100), ended: make(chan error, 1)}
	e.out.Buffer(nil, 64<<20)
	b := New(Config{URL: url, Token: vault.NewSecret("ewt_x"), In: inR, Out: outW, Pause: time.Millisecond, Note: func(f string, a ...any) { e.notes <- fmt.Sprintf(f, a...) }})
	go func() {
		err := b.Run(context.Background())
		_ = outW.Close() // whoever reads sees the end
		_ = inR.Close()
		e.ended <- err
	}()
	t.Cleanup(func() { _ = e.end() })
	return e
}

// end closes the client's end and gives how the bridge ended.
func (e *ends) end() error {
	e.once.Do(func() {
		_ = e.in.Close()
		go func() { _, _ = io.Copy(io.Discard, e.outR) }()
		e.err = <-e.ended
	})
	return e.err
}

func (e *ends) send(line string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, line+"\n"); err != nil {
		e.t.Fatal(err)
	}
}

func (e *ends) next() string {
	e.t.Helper()
	if !e.out.Scan() {
		e.t.Fatalf("the bridge wrote no more: %v", e.out.Err())
	}
	return e.out.Text()
}

// reference is a server of the SDK. Its tools: echo; steps, with progress; ask, which asks the client; wait, which waits until it is
// cancelled.
func reference(cancelled chan<- struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "reference", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object"}`)
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	s.AddTool(&mcp.Tool{Name: "echo ✓", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return say(string(r.Params.Arguments)), nil
	})
	s.AddTool(&mcp.Tool{Name: "steps", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)}); err != nil {
				return nil, err
			}
		}
		return say("done"), nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}})
		if err != nil {
			return nil, err
		}
		return say(fmt.Sprint(answer.Action, answer.Content["name"])), nil
	})
	s.AddTool(&mcp.Tool{Name: "wait", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		cancelled <- struct{}{}
		return nil, ctx.Err()
	})
	return s
}

// replaceable is a server that can be replaced while its address stays.
type replaceable struct{ handler atomic.Pointer[http.Handler] }

func (r *replaceable) set(h http.Handler) { r.handler.Store(&h) }

func (r *replaceable) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Header.Get("Authorization") != "Bearer ewt_x" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	(*r.handler.Load()).ServeHTTP(w, q)
}

func served(t *testing.T, version string) (*replaceable, *httptest.Server, chan struct{}) {
	t.Helper()
	cancelled := make(chan struct{}, 1)
	r := &replaceable{}
	r.set(handlerOf(t, version, cancelled))
	at := httptest.NewServer(r)
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	return r, at, cancelled
}

func handlerOf(t *testing.T, version string, cancelled chan struct{}) http.Handler {
	s := reference(cancelled)
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close() // of a server that was replaced
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: version >= modern, PropagateRequestCancellation: version >= modern})
}

// A client of the SDK over a bridge has everything that it would have over HTTP, in both eras of the protocol.
func TestClientOverABridge(t *testing.T) {
	for _, version := range []string{"2025-11-25", modern} {
		t.Run(version, func(t *testing.T) {
			handler, at, cancelled := served(t, version)
			e := start(t, at.URL)
			told := make(chan float64, 10)
			asked := make(chan struct{}, 10)
			client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params.Progress },
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked <- struct{}{}
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "ada"}}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: e.outR, Writer: e.in}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if got := session.InitializeResult(); got.ServerInfo != nil && got.ServerInfo.Name != "reference" {
				t.Errorf("%+v", got)
			}
			call := func(ctx context.Context, tool, args string) (string, error) {
				p := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args), Meta: mcp.Meta{"progressToken": tool}}
				r, err := session.CallTool(ctx, p)
				if err != nil {
					return "", err
				}
				return r.Content[0].(*mcp.TextContent).Text, nil
			}
			list, err := session.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 4 {
				t.Fatalf("%+v, %v", list, err)
			}
			if got, err := call(t.Context(), "echo ✓", `{"n":9007199254740993}`); err != nil || got != `{"n":9007199254740993}` {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := call(t.Context(), "steps", `{}`); err != nil || got != "done" {
				t.Errorf("%q, %v", got, err)
			}
			for i := range 3 {
				if got := <-told; got != float64(i+1) {
					t.Errorf("progress %v as number %d", got, i+1)
				}
			}
			if version < modern { // later servers ask by their result, of which a bridge knows nothing
				if got, err := call(t.Context(), "ask", `{}`); err != nil || got != "acceptada" {
					t.Errorf("%q, %v", got, err)
				}
				<-asked
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-told; cancel() }() // the call is under way at the server
			if got, err := call(ctx, "wait", `{}`); err == nil {
				t.Errorf("%q", got)
			}
			<-cancelled
			// A server that was started again knows no session. The client hears nothing of it.
			handler.set(handlerOf(t, version, cancelled))
			if got, err := call(t.Context(), "echo ✓", `{"again":true}`); err != nil || got != `{"again":true}` {
				t.Errorf("%q, %v", got, err)
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if err := e.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stub answers as it is told, and keeps what it was sent.
type stub struct {
	*httptest.Server
	mu   sync.Mutex
	sent []string
	head []http.Header
}

func newStub(t *testing.T, answer func(http.ResponseWriter, *http.Request, string)) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sent, s.head = append(s.sent, r.Method+" "+string(raw)), append(s.head, r.Header.Clone())
		s.mu.Unlock()
		answer(w, r, string(raw))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *stub) last() (string, http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[len(s.sent)-1], s.head[len(s.head)-1]
}

func (s *stub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// Bytes go through as they are, both ways, and a line stays a line.
func TestBytesAreKept(t *testing.T) {
	answer := `{"jsonrpc":"2.0", "id":"a\u0041", "result":{"n":1.10,"big":12345678901234567890,"u":"\u00e9<&>","later":{}}}`
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, sent string) {
		switch {
		case strings.Contains(sent, "stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, ": hello\r\n\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\r\ndata: \"params\":[1.0]}\r\n\r\nevent: other\ndata: {}\n\ndata: %s\n\n", answer)
		default:
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprintf(w, "\n%s\n", strings.Replace(answer, `"later":{}`, "\"later\":\n{\r\n}", 1))
		}
	})
	e := start(t, s.URL)
	line := `{"params":{"name":"é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"arguments":{"n":1.50,"s":"\u2028"}},"method":"tools/call","id":"a\u0041","jsonrpc":"2.0"}`
	e.send("  " + line + "  ")
	if got, want := e.next(), strings.ReplaceAll(answer, `, "`, `,"`); got != strings.ReplaceAll(want, `": `, `":`) {
		t.Errorf("%s", got)
	}
	sent, head := s.last()
	if sent != "POST "+line {
		t.Errorf("%s", sent)
	}
	if head.Get("Mcp-Method") != "tools/call" || head.Get("Mcp-Name") != "é" || head.Get("Mcp-Protocol-Version") != modern {
		t.Errorf("%v", head)
	}
	e.send(strings.Replace(line, "arguments", "stream", 1))
	if got := e.next(); got != `{"jsonrpc":"2.0","method":"x","params":[1.0]}` {
		t.Errorf("%s", got)
	}
	if got := e.next(); got != answer {
		t.Errorf("%s", got)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} { // what they are about is in the header too
		e.send(strings.NewReplacer("tools/call", method, `"name":"é"`, `"taskId":"call_1.mcp_1.1"`).Replace(line))
		e.next()
		if _, head := s.last(); head.Get("Mcp-Method") != method || head.Get("Mcp-Name") != "call_1.mcp_1.1" {
			t.Errorf("%v", head)
		}
	}
}

// A stream that breaks off is gone on with where the server gave a place for that, and never asked for twice.
func TestABrokenStreamIsGoneOnWith(t *testing.T) {
	gets := 0
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, sent string) {
		w.Header().Set("Mcp-Session-Id", "s1")
		w.Header().Set("Content-Type", "text/event-stream")
		switch {
		case r.Method == http.MethodDelete:
		case r.Method == http.MethodGet:
			gets++
			if r.Header.Get("Last-Event-ID") != fmt.Sprint(gets) || r.Header.Get("Mcp-Session-Id") != "s1" || r.Header.Get("Mcp-Protocol-Version") != "2025-06-18" {
				t.Errorf("%v", r.Header)
			}
			if gets == 1 {
				fmt.Fprint(w, "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"news\"}\n\n")
				return
			}
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
		case strings.Contains(sent, "initialize"):
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\"}}\n\n")
		case strings.Contains(sent, "lost"):
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"begun\"}\n\n")
		default:
			fmt.Fprint(w, "id: 1\nretry: 1\ndata: \n\n")
		}
	})
	e := start(t, s.URL)
	e.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	e.next()
	e.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`)
	if got := e.next(); !strings.Contains(got, "news") {
		t.Error(got)
	}
	if got := e.next(); !strings.Contains(got, `"id":7`) {
		t.Error(got)
	}
	e.send(`{"jsonrpc":"2.0","id":8,"method":"lost"}`)
	e.next()
	if got := e.next(); !strings.Contains(got, `"code":-32052`) || !strings.Contains(got, `"id":8`) {
		t.Error(got)
	}
	if err := e.end(); err != nil {
		t.Error(err)
	}
	if sent, _ := s.last(); sent != "DELETE " {
		t.Errorf("the session was not ended: %s", sent)
	}
}

// Whatever the client writes, each request has one answer, and nothing that is no message reaches the server.
func TestHostileLines(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, sent string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	e := start(t, s.URL)
	for _, line := range []string{"garbage", "[1,2]", `"text"`, "\x00\xff", `{"id":`, strings.Repeat("[", 100_000), "", "  "} {
		e.send(line)
	}
	go func() {
		e.send(`{"jsonrpc":"2.0","id":"huge","method":"tools/call","params":{"x":"` + strings.Repeat("x", 10<<20) + `"}}`)
		e.send(strings.Repeat("x", 10<<20))
		e.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	}()
	if got := e.next(); !strings.Contains(got, `"id":"huge"`) || !strings.Contains(got, "too_large") {
		t.Errorf("%.300s", got)
	}
	if got := e.next(); !strings.Contains(got, `"result"`) {
		t.Error(got)
	}
	if sent, _ := s.last(); !strings.Contains(sent, "ping") || s.count() != 1 {
		t.Errorf("%d messages were sent on: %.300s", s.count(), sent)
	}
	if err := e.end(); err != nil {
		t.Error(err)
	}
}

// There are at most so many requests under way, and none twice.
func TestTooManyRequests(t *testing.T) {
	release := make(chan struct{})
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, sent string) {
		m, err := read([]byte(sent))
		if err != nil {
			t.Error(err)
			return
		}
		<-release
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.id)
	})
	e := start(t, s.URL)
	for i := range maxOpen {
		e.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
	}
	e.send(`{"jsonrpc":"2.0","id":0,"method":"ping"}`)
	if got := e.next(); !strings.Contains(got, `"id":0,`) && !strings.Contains(got, "is under way") {
		t.Error(got)
	}
	e.send(`{"jsonrpc":"2.0","id":"more","method":"ping"}`)
	if got := e.next(); !strings.Contains(got, `"code":"busy"`) {
		t.Error(got)
	}
	close(release)
	for range maxOpen {
		if got := e.next(); !strings.Contains(got, `"result"`) {
			t.Error(got)
		}
	}
}

// A server that is not there, lets nobody in, or answers nonsense: the request is answered, and the end says why.
func TestServersThatDoNotAnswer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, tc := range map[string]struct {
		url    string
		status int
		body   string
		code   problem.Code
	}{
		"gone":                {url: gone.URL, code: problem.Unavailable},
		"unauthorized":        {status: 401, body: `{"code":"expired","detail":"the access token is over"}`, code: problem.Expired},
		"a code of another's": {status: 403, body: `{"code":"no_way","detail":"x"}`, code: problem.Denied},
		"not there":           {status: 404, body: "404 page not found", code: problem.NotFound},
		"a page":              {status: 200, body: "<html>", code: problem.Upstream},
		"another's":           {status: 200, body: `{"jsonrpc":"2.0","id":99,"result":{}}`, code: problem.Upstream},
		"redirect":            {status: 302, body: "", code: problem.Upstream},
		"error":               {status: 400, body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"headers"}}`, code: problem.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			url := tc.url
			if url == "" {
				url = newStub(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
					w.Header().Set("Location", "http://127.0.0.1:1/")
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, tc.body)
				}).URL
			}
			e := start(t, url)
			e.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			if got := e.next(); !strings.Contains(got, `"id":1`) || !strings.Contains(got, `"code":"`+string(tc.code)+`"`) {
				t.Error(got)
			}
			if note := <-e.notes; note == "" || strings.Contains(note, "ewt_x") {
				t.Error(note)
			}
			if err := e.end(); problem.CodeOf(err) != tc.code {
				t.Errorf("%v", err)
			}
		})
	}
}

// A connection that breaks after the request was written leaves its outcome unknown.
func TestABrokenConnection(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	e := start(t, s.URL)
	e.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	if got := e.next(); !strings.Contains(got, `"code":-32052`) {
		t.Error(got)
	}
	if n := s.count(); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

// A client that reads no more, or a bridge that is told to end, ends.
func TestEnds(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	e := start(t, s.URL)
	if err := e.outR.Close(); err != nil {
		t.Fatal(err)
	}
	e.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	buskit.Eventually(t, "the bridge ends", func() bool {
		_, err := io.WriteString(e.in, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n")
		return err != nil
	})
	if err := e.end(); problem.CodeOf(err) != problem.Unavailable {
		t.Error(err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`))
	f.Add([]byte(`{"id":null,"params":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := read(raw)
		if err == nil && m.request() && !json.Valid([]byte(m.id)) {
			t.Errorf("the id %q is no JSON", m.id)
		}
		if id := idIn(raw); id != "" && !json.Valid([]byte(id)) {
			t.Errorf("the id %q is no JSON", id)
		}
		if text := inHeader(string(raw)); text != strings.TrimSpace(text) || strings.ContainsAny(text, "\r\n\x00\x7f") {
			t.Errorf("%q in a header", text)
		}
	})
}
