package privatehttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of a request and its answer.
const (
	defaultTimeout = 30 * time.Second
	maxTimeout     = 2 * time.Minute
	defaultBytes   = 64 << 10
	maxBytes       = 256 << 10
	maxBody        = 256 << 10
	maxURL         = 8 << 10
	maxHeaders     = 32
	maxHeaderBytes = 16 << 10
	maxHops        = 5
	maxWritten     = 512 << 10 // of a text in JSON: an answer has to fit in one message
)

// Get reads from a listed service and follows its redirects as far as they are listed. Problems: denied, invalid, timeout,
// cancelled, upstream_error, unavailable.
func (d *Door) Get(ctx context.Context, a machine.HTTPArgs) (machine.HTTP, error) {
	if a.Method == "" {
		a.Method = http.MethodGet
	}
	if a.Method != http.MethodGet && a.Method != http.MethodHead || a.Body != "" {
		return machine.HTTP{}, problem.New(problem.Invalid, "http_private sends GET or HEAD without a body; http_private_send sends the rest")
	}
	return d.ask(ctx, a, maxHops)
}

// Send sends what may change something. A redirect is its answer like any other. Problems: as of Get, and unknown_outcome
// when the request went out and no answer came.
func (d *Door) Send(ctx context.Context, a machine.HTTPArgs) (machine.HTTP, error) {
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, a.Method) {
		return machine.HTTP{}, problem.New(problem.Invalid, "http_private_send sends POST, PUT, PATCH or DELETE; http_private reads")
	}
	return d.ask(ctx, a, 0)
}

func (d *Door) ask(ctx context.Context, a machine.HTTPArgs, hops int) (out machine.HTTP, err error) {
	req, err := read(&a)
	if err != nil {
		return out, err
	}
	began := time.Now()
	within := time.Duration(a.Timeout) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, within, problem.New(problem.Timeout, "%s did not answer within %s", req.URL.Host, within))
	defer cancel()
	for {
		var location string
		if location, err = d.one(ctx, req, &a, &out); err != nil {
			return out, err
		}
		if hops == 0 || location == "" {
			break
		}
		if len(out.Hops) == hops {
			return out, problem.New(problem.Upstream, "%s redirects more than %d times", req.URL.Host, hops)
		}
		out.Hops = append(out.Hops, req.URL.String())
		if req, err = d.next(ctx, req, location); err != nil {
			return out, err
		}
	}
	out.Millis = time.Since(began).Milliseconds()
	return out, nil
}

// read makes the request that the arguments are of, and fills in their defaults.
func read(a *machine.HTTPArgs) (*http.Request, error) {
	if a.Timeout == 0 {
		a.Timeout = int(defaultTimeout.Seconds())
	}
	if a.Max == 0 {
		a.Max = defaultBytes
	}
	size := 0
	for name, value := range a.Headers {
		size += len(name) + len(value)
	}
	switch {
	case a.Timeout < 1 || a.Timeout > int(maxTimeout.Seconds()) || a.Max < 1 || a.Max > maxBytes:
		return nil, problem.New(problem.Invalid, "timeout_s is outside 1 to %d, or max_bytes outside 1 to %d", int(maxTimeout.Seconds()), maxBytes)
	case len(a.URL) > maxURL || len(a.Body) > maxBody || len(a.Headers) > maxHeaders || size > maxHeaderBytes:
		return nil, problem.New(problem.TooLarge, "a request has a URL of at most %d bytes, %d headers of %d bytes together, and a body of %d", maxURL, maxHeaders, maxHeaderBytes, maxBody)
	}
	req, err := http.NewRequest(a.Method, a.URL, strings.NewReader(a.Body)) //nolint:noctx // ask gives it one per hop
	if err != nil {
		return nil, problem.New(problem.Invalid, "%.200q is no URL", a.URL)
	}
	if a.Body == "" {
		req.Body, req.GetBody = http.NoBody, nil
	} else {
		// A connection that was open already and broke is no reason to send it again.
		req.GetBody = nil
	}
	for name, value := range a.Headers {
		req.Header.Set(name, value)
	}
	req.URL.Fragment = ""
	return req, nil
}

// one makes one request. It gives the place that the answer redirects to.
func (d *Door) one(ctx context.Context, req *http.Request, a *machine.HTTPArgs, out *machine.HTTP) (location string, err error) {
	t, err := d.find(req)
	if err != nil {
		return "", err
	}
	var connected atomic.Bool // a dial may outlive the request that asked for it
	address := atomic.Pointer[string]{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		to := c.Conn.RemoteAddr().String()
		address.Store(&to)
		connected.Store(true)
	}})
	defer t.way.CloseIdleConnections() // the next one is dialled anew, and its address checked
	resp, err := t.way.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return "", failure(ctx, req, err, connected.Load())
	}
	defer resp.Body.Close()
	out.URL, out.Status, out.Headers = req.URL.String(), resp.StatusCode, headersOf(resp.Header, t.Credentials)
	if at := address.Load(); at != nil {
		out.Address = *at
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		location = resp.Header.Get("Location")
	}
	show(ctx, resp.Body, a.Max, out)
	return location, nil
}

// failure gives a request without an answer its code. One that may have changed something, and went out, has no known end.
func failure(ctx context.Context, req *http.Request, err error, connected bool) error {
	d := problem.DetailOf(err)
	switch {
	case d.Code == problem.Denied:
		return refused(problem.Wrap(err, problem.Denied, "%s leads to an address that is never asked: this machine's own, a cloud's metadata, or one that hides another", req.URL.Host))
	case connected && req.Method != http.MethodGet && req.Method != http.MethodHead:
		return problem.Wrap(err, problem.Unknown, "unknown_outcome: the %s went out to %s, and no answer came: %s", req.Method, req.URL.Host, d.Message)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case connected:
		return problem.Wrap(err, problem.Upstream, "%s broke off, or did not answer as HTTP", req.URL.Host)
	}
	return err
}

// show puts as much of a body into the answer as was asked for. It is counted as it is after decompression.
func show(ctx context.Context, body io.Reader, limit int, out *machine.HTTP) {
	raw, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	out.Text, out.Base64, out.Broken = "", "", ""
	switch {
	case err != nil && ctx.Err() != nil:
		out.Broken = problem.DetailOf(context.Cause(ctx)).Message
	case err != nil:
		out.Broken = "the answer ended early"
	}
	out.Truncated = len(raw) > limit || err != nil
	raw = raw[:min(len(raw), limit)]
	if whole := wholeRunes(raw); out.Truncated {
		raw = whole
	}
	out.Bytes = len(raw)
	if text := string(raw); utf8.ValidString(text) && written(text) <= maxWritten {
		out.Text = text
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(raw)
	}
}

// written is the length of a text in JSON: what an answer's bytes become must not be up to who answers.
func written(text string) int {
	raw, err := json.Marshal(text)
	if err != nil {
		return maxWritten + 1
	}
	return len(raw)
}

// wholeRunes leaves out a character that was cut off at the end.
func wholeRunes(raw []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(raw); i++ {
		if b := raw[len(raw)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(raw[len(raw)-i:]) {
				return raw[:len(raw)-i]
			}
			break
		}
	}
	return raw
}

// headersOf shows an answer's headers, as many as are worth reading. What is a credential is not shown where callers have none.
func headersOf(h http.Header, credentials bool) map[string]string {
	out, size := map[string]string{}, 0
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := strings.ToValidUTF8(strings.Join(h[name], ", "), "\uFFFD")
		size += len(name) + len(value)
		if size > maxHeaderBytes || len(out) >= 2*maxHeaders {
			break
		}
		if name == "Set-Cookie" && !credentials {
			continue
		}
		out[name] = value
	}
	return out
}
