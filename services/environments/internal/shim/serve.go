package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// socketFile is where a shim is asked, in its own directory.
const socketFile = "sock"

// Serve is the shim's main: it answers the connector until the attachment has ended.
func Serve(ctx context.Context, cfg Config, self string, log *slog.Logger) error {
	s, err := Start(cfg, self, log)
	if err != nil {
		return err
	}
	path := filepath.Join(cfg.Dir, socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, s.Close())
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close(), s.Close())
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	srv := &http.Server{Handler: s.handler(done), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err = <-served:
	case <-s.lost: // a command may have ended the launcher, which has its user: the next order has a shim begun anew
		done()
		err = srv.Close()
		<-served
	case <-ctx.Done():
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = srv.Shutdown(drain)
		<-served
	}
	s.End(context.WithoutCancel(ctx), 0, Cancelled)
	return errors.Join(err, s.Close())
}

// handler answers the connector. end is called once the attachment has ended.
func (s *Shim) handler(end func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /execs", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(spec Spec) (any, error) { return s.Begin(spec) })
	})
	mux.HandleFunc("GET /execs", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(struct{}) (any, error) { return s.List(), nil })
	})
	mux.HandleFunc("GET /execs/{id}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := patience(r)
		defer cancel()
		answer(w, r, func(struct{}) (any, error) { return s.Get(ctx, r.PathValue("id")) })
	})
	mux.HandleFunc("GET /execs/{id}/output", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := patience(r)
		defer cancel()
		answer(w, r, func(struct{}) (any, error) {
			// The connector's own numbers; what is none counts as 0.
			after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
			limit, _ := strconv.Atoi(r.FormValue("max"))
			return s.Read(ctx, r.PathValue("id"), after, min(max(limit, 1), maxSpec))
		})
	})
	mux.HandleFunc("POST /execs/{id}/input", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(in wordInput) (any, error) { return s.Write(r.PathValue("id"), in.Data, in.EOF) })
	})
	mux.HandleFunc("POST /execs/{id}/feed", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(in Fed) (any, error) { return s.Feed(r.PathValue("id"), in) })
	})
	mux.HandleFunc("POST /execs/{id}/signal", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(in wordSignal) (any, error) {
			sig := unix.SignalNum("SIG" + in.Signal)
			if sig == 0 {
				return nil, problem.New(problem.Invalid, "there is no signal %.20q", in.Signal)
			}
			return s.Signal(r.PathValue("id"), sig)
		})
	})
	mux.HandleFunc("POST /execs/{id}/stop", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(in wordEnd) (any, error) { return s.Stop(r.Context(), r.PathValue("id"), in.Reason, in.Grace) })
	})
	s.handleWays(mux)
	mux.HandleFunc("POST /end", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(in wordEnd) (any, error) { return s.End(r.Context(), in.Grace, in.Reason), nil })
		end()
	})
	return mux
}

// patience is how long the caller lets something be waited for.
func patience(r *http.Request) (context.Context, context.CancelFunc) {
	ms, _ := strconv.Atoi(r.FormValue("wait_ms"))
	return context.WithTimeout(r.Context(), time.Duration(min(max(ms, 0), 60_000))*time.Millisecond)
}

func answer[Q any](w http.ResponseWriter, r *http.Request, f func(Q) (any, error)) {
	var q Q
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSpec)).Decode(&q); err != nil {
			problem.WriteHTTP(w, problem.Wrap(err, problem.Invalid, "what was asked cannot be read"))
			return
		}
	}
	out, err := f(q)
	if err != nil {
		problem.WriteHTTP(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // whoever asked is gone if this fails
}

// Client asks a shim.
type Client struct {
	dir  string
	http *http.Client
}

// Dial makes a client of the shim in a directory; it need not run yet.
func Dial(dir string) *Client {
	path := filepath.Join(dir, socketFile)
	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
	}}}
}

// Close lets go of the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// There says whether somebody listens.
func (c *Client) There(ctx context.Context) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(c.dir, socketFile))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was said
	return true
}

// Begin, Get, Read, Write, Signal, Stop, List and End are the shim's own. Problems: those of the shim, and unavailable when
// it does not answer.
func (c *Client) Begin(ctx context.Context, spec Spec) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodPost, "/execs", spec)
}

// Get waits up to wait for the end.
func (c *Client) Get(ctx context.Context, id string, wait time.Duration) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodGet, pathOf(id)+"?wait_ms="+strconv.FormatInt(wait.Milliseconds(), 10), nil)
}

// Read waits up to wait for output.
func (c *Client) Read(ctx context.Context, id string, after int64, limit int, wait time.Duration) (Output, error) {
	return ask[Output](ctx, c, http.MethodGet, pathOf(id)+"/output?after="+strconv.FormatInt(after, 10)+"&max="+strconv.Itoa(limit)+"&wait_ms="+strconv.FormatInt(wait.Milliseconds(), 10), nil)
}

// Write gives input.
func (c *Client) Write(ctx context.Context, id string, data []byte, eof bool) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodPost, pathOf(id)+"/input", wordInput{data, eof})
}

// Feed gives a command a piece of what it is fed; see Shim.Feed.
func (c *Client) Feed(ctx context.Context, id string, piece Fed) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodPost, pathOf(id)+"/feed", piece)
}

// Signal sends a signal, named without SIG.
func (c *Client) Signal(ctx context.Context, id, signal string) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodPost, pathOf(id)+"/signal", wordSignal{signal})
}

// Stop ends a command.
func (c *Client) Stop(ctx context.Context, id, reason string, grace time.Duration) (Exec, error) {
	return ask[Exec](ctx, c, http.MethodPost, pathOf(id)+"/stop", wordEnd{grace, reason})
}

// List gives the commands.
func (c *Client) List(ctx context.Context) ([]Exec, error) {
	return ask[[]Exec](ctx, c, http.MethodGet, "/execs", nil)
}

// End ends the attachment and the shim.
func (c *Client) End(ctx context.Context, grace time.Duration, reason string) (Ended, error) {
	return ask[Ended](ctx, c, http.MethodPost, "/end", wordEnd{grace, reason})
}

// pathOf is a command's own path. An id that is none stays none: it is not made into another path.
func pathOf(id string) string { return "/execs/" + url.PathEscape(id) }

func ask[A any](ctx context.Context, c *Client, method, path string, body any) (out A, err error) {
	var raw []byte
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return out, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://shim"+path, strings.NewReader(string(raw)))
	if err != nil {
		return out, problem.Wrap(err, problem.Invalid, "that is no command's id")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, problem.Wrap(err, problem.Unavailable, "what looks after the machine's commands does not answer")
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(resp.Body, 4*maxSpec)); err != nil {
		return out, problem.Wrap(err, problem.Unavailable, "what looks after the machine's commands does not answer")
	}
	if resp.StatusCode != http.StatusOK {
		if p := problem.ReadHTTP(raw); p != nil && p.Code.Known() {
			return out, problem.New(p.Code, "%s", p.Message)
		}
		return out, problem.New(problem.Internal, "what looks after the machine's commands answers status %d without saying why", resp.StatusCode)
	}
	return out, json.Unmarshal(raw, &out)
}
