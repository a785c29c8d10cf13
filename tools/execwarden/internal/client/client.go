package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxAnswer is the largest answer that is read, in bytes. The largest of the API is a page of events, under 2 MiB; a
// list of connections grows with the tools that providers describe.
const maxAnswer = 32 << 20

// Config says where the API is and who asks.
type Config struct {
	URL       string // such as http://127.0.0.1:8080
	Token     string
	UserAgent string

	// How an event stream is kept up; the zero value is right outside of tests.
	Reconnect Reconnect
}

// Client asks one API as one member.
type Client struct {
	base      *url.URL
	token     string
	agent     string
	http      *http.Client
	reconnect Reconnect
}

// New makes a client. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "" {
		return nil, problem.New(problem.Invalid, "%.200q is not the http(s) URL of an API, such as http://127.0.0.1:8080", cfg.URL)
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, problem.New(problem.Invalid, "the API's URL has a user, a query or a fragment; leave them out")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = 3 * time.Minute // proving a large ledger takes its time
	return &Client{
		base: base, token: cfg.Token, agent: cfg.UserAgent, reconnect: cfg.Reconnect.orDefault(),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// ExposesToken says whether the token goes over a network in the clear.
func (c *Client) ExposesToken() bool {
	if c.base.Scheme == "https" || c.base.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(c.base.Hostname())
	return ip == nil || !ip.IsLoopback()
}

func get[A any](ctx context.Context, c *Client, path string, query url.Values) (A, error) {
	return send[A](ctx, c, http.MethodGet, path, query, nil)
}

// send asks once. A nil body sends none.
func send[A any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (A, error) {
	return sendWith[A](ctx, c, method, path, query, body, nil)
}

// sendWith is send with fields of the request's header.
func sendWith[A any](ctx context.Context, c *Client, method, path string, query url.Values, body any, header http.Header) (A, error) {
	var answer A
	resp, err := c.open(ctx, method, path, query, body, header)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer, c.unreachable(ctx, err)
	case len(raw) > maxAnswer:
		return answer, problem.New(problem.TooLarge, "the server's answer is over %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, problem.Wrap(err, problem.Internal, "the server's answer to %s %s is not what this version of execwarden reads; is %s an ExecWarden API, of the same version?", method, path, c.base)
	}
	return answer, nil
}

// open sends a request and gives an answer that is a success. Its body is the caller's to close.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, body any, header http.Header) (*http.Response, error) {
	var content io.Reader
	kind := "application/json"
	if archive, ok := body.(zipArchive); ok {
		content, kind = bytes.NewReader(archive), "application/zip"
	} else if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, problem.Wrap(err, problem.Internal, "the request cannot be written")
		}
		content = bytes.NewReader(raw)
	}
	at := c.base.JoinPath(path)
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), content)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the request cannot be made")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	// "Recorded, and not known yet" is a problem with the status 202.
	if resp.StatusCode < 200 || resp.StatusCode > 299 || isProblem(resp) {
		defer resp.Body.Close()
		return nil, c.refused(resp)
	}
	return resp, nil
}

// unreachable says why there is no answer. The end of ctx counts before what it made of the connection.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return problem.Wrap(cause, problem.Timeout, "%s did not answer in time; a longer --timeout waits longer", c.base)
		}
		return problem.Wrap(cause, problem.Cancelled, "interrupted")
	}
	reason := err
	var wrapped *url.Error // its text repeats the request
	if errors.As(err, &wrapped) {
		reason = wrapped.Err
	}
	return problem.Wrap(err, problem.Unavailable, "%s cannot be reached (%s); is `execwarden up` running there, and is --url right?", c.base, reason)
}

// segment is a name or id as one part of a path.
func segment(text string) string { return url.PathEscape(strings.TrimSpace(text)) }
