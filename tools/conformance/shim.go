package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// shim stands between a client and the endpoint of one connection. It adds the agent's token, since the suite can send no
// headers of its own, and writes down the calls that pass.
type shim struct {
	connection string
	server     http.Server
	at         string
	ended      chan error

	requests atomic.Int64
	reading  sync.WaitGroup

	mu      sync.Mutex
	open    map[requestKey]string // calls that are not answered yet: the tool's or method's full name
	results map[string]int        // answers, by that name
	errors  map[string]int
}

// requestKey is of one request: by its id in its session, or where there is none by a number of ours.
type requestKey struct {
	session string
	alone   int64
	id      string
}

// maxMessage bounds one message, in bytes.
const maxMessage = 8 << 20

// openShim serves one connection at a port of this machine.
func openShim(api, connection, token string) (*shim, error) {
	target, err := url.Parse(api + "/mcp/c/" + connection)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &shim{connection: connection, at: "http://" + l.Addr().String() + "/mcp", ended: make(chan error, 1),
		open: map[requestKey]string{}, results: map[string]int{}, errors: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, // events go on as they come
		Rewrite: func(r *httputil.ProxyRequest) {
			host := r.In.Host // the suite lies in it, to see that the endpoint looks
			r.SetURL(target)
			r.Out.URL.Path, r.Out.Host = target.Path, host
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		ModifyResponse: s.answered,
	}
	s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.pass(proxy, w, r) })
	go func() { s.ended <- s.server.Serve(l) }()
	return s, nil
}

func (s *shim) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close() // a client's open stream does not hold this up
	}
	s.reading.Wait()
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pass hands a request on, and reads along what is asked and answered.
func (s *shim) pass(next http.Handler, w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	key := requestKey{session: r.Header.Get("Mcp-Session-Id")}
	if key.session == "" {
		key.alone = s.requests.Add(1)
	}
	if name, id, ok := callIn(raw); ok {
		key.id = id
		s.mu.Lock()
		s.open[key] = s.connection + "." + name
		s.mu.Unlock()
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, key)))
}

// answered has the messages of a response counted: it is one, or a stream of them.
func (s *shim) answered(r *http.Response) error {
	key, ok := r.Request.Context().Value(requestKey{}).(requestKey)
	if !ok || r.StatusCode == http.StatusAccepted {
		return nil
	}
	stream := strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream")
	body := r.Body
	reader, writer := io.Pipe()
	s.reading.Go(func() {
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, maxMessage)
		for lines.Scan() {
			line := lines.Bytes()
			if rest, data := bytes.CutPrefix(line, []byte("data:")); data || !stream {
				s.heard(key, rest)
			}
		}
		_, _ = io.Copy(io.Discard, reader) // a line that is too long is no answer of the suite's; the client gets it all the same
	})
	r.Body = readAlong{io.TeeReader(body, writer), body, writer}
	return nil
}

type readAlong struct {
	io.Reader
	body io.Closer
	to   *io.PipeWriter
}

// Close implements io.Closer.
func (r readAlong) Close() error { return errors.Join(r.to.Close(), r.body.Close()) }

// heard counts an answer to a call. An error may be the tool's server's, of a call that was made, or the endpoint's own, to what
// never was a call: a header that does not match, an unknown version, another's host.
func (s *shim) heard(key requestKey, raw []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Result == nil && m.Error == nil {
		return
	}
	key.id = string(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.open[key]
	if !ok {
		return
	}
	delete(s.open, key)
	if m.Result != nil {
		s.results[name]++
	} else {
		s.errors[name]++
	}
}

// callIn says what a message calls: a tool, or one of the methods that are recorded as calls.
func callIn(raw []byte) (name, id string, ok bool) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if json.Unmarshal(raw, &m) != nil || len(m.ID) == 0 {
		return "", "", false
	}
	switch m.Method {
	case "tools/call":
		return m.Params.Name, string(m.ID), true
	case "resources/read", "prompts/get", "completion/complete":
		return m.Method, string(m.ID), true
	}
	return "", "", false
}
