package callpath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
)

// OutsideConfig says what to measure of the way that external agents take: over MCP.
type OutsideConfig struct {
	Protocol string // version of MCP that clients speak, and the newest that the tool's server does: the same on every way
	Syncs    []Sync
	Callers  []int
	Loads    []Load
	Rounds   int
	Round    time.Duration
	Sessions int // how many wait for the revocations; 0 leaves them out
	Revokes  int
}

// Load is what the broker decides among.
type Load struct {
	Grants int `json:"grants"` // of the agent
	Tools  int `json:"tools"`  // of the connection
}

// DefaultOutside takes about four minutes.
func DefaultOutside() OutsideConfig {
	return OutsideConfig{Protocol: "2025-11-25", Syncs: []Sync{Interval, Always}, Callers: []int{1, 16, 64},
		Loads: []Load{{1, 1}, {1, 50}, {1000, 50}, {1, 500}}, Rounds: 5, Round: 500 * time.Millisecond, Sessions: 1000, Revokes: 5}
}

func (c OutsideConfig) validate() error {
	if len(c.Syncs) == 0 || len(c.Callers) == 0 || len(c.Loads) == 0 || c.Rounds < 1 || c.Round < 10*time.Millisecond || c.Sessions < 0 || c.Sessions > 0 && c.Revokes < 1 {
		return problem.New(problem.Invalid, "there is nothing to measure: name a sync, callers, a load, rounds of at least 10ms, and revokes where there are sessions")
	}
	for _, l := range c.Loads {
		if l.Grants < 1 || l.Tools < 1 || l.Tools > 500 {
			return problem.New(problem.Invalid, "a load of %d grants and %d tools: at least one of each, and 500 tools at most", l.Grants, l.Tools)
		}
	}
	return nil
}

// OutsideRow is one load, called by some at once.
type OutsideRow struct {
	Sync    Sync `json:"sync"`
	Load    Load `json:"load"`
	Callers int  `json:"callers"`

	DirectP50, DirectP99, P50, P99 Micros
	DirectRate, Rate               float64 // calls per second, medians of the rounds
	Added                          Micros  // to the median latency, in the median round
	Times                          float64 // direct rate over rate, in the median round
}

// RevokedRow says what one revocation took with many sessions open: until it was answered, until each session knew that its
// list changed, and until each one's next call was denied.
type RevokedRow struct {
	Sync     Sync `json:"sync"`
	Sessions int  `json:"sessions"`
	Bytes    int  `json:"bytes_per_session"` // of heap and stacks, of both ends

	Answered, Told, Denied [3]Micros // p50, p99, max
}

// Outside is everything that was measured.
type Outside struct {
	Rows    []OutsideRow `json:"rows"`
	Stages  []StageRow   `json:"stages,omitempty"`
	Revoked []RevokedRow `json:"revoked,omitempty"`
}

// RunOutside measures everything that cfg asks for.
func RunOutside(ctx context.Context, cfg OutsideConfig, log *slog.Logger) (r Outside, err error) {
	if err := cfg.validate(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "bench-mcp")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n := 0
	each := func(s Sync, l Load, do func(h *house, token string) error) (err error) {
		n++
		home := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(home, 0o700); err != nil {
			return err
		}
		h, err := newHouse(ctx, home, Setting{Transport: InProcess, Sync: s}, log, true, newProvider(l.Tools-1, cfg.Protocol))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.close()) }()
		token, err := h.outsider(ctx, l.Grants)
		if err != nil {
			return err
		}
		return do(h, token)
	}
	for _, s := range cfg.Syncs {
		for _, l := range cfg.Loads {
			if err := each(s, l, func(h *house, token string) error { return r.calls(ctx, h, token, s, l, cfg) }); err != nil {
				return r, err
			}
		}
		if cfg.Sessions > 0 {
			if err := each(s, Load{cfg.Revokes, 1}, func(h *house, token string) error { return r.revocations(ctx, h, token, s, cfg) }); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// visitor adds a token to what a client sends.
type visitor struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (v visitor) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+v.token)
	return v.next.RoundTrip(r)
}

// dial connects one client, with connections of its own.
func dial(ctx context.Context, url, token, protocol string, changed func()) (*mcp.ClientSession, error) {
	opts := &mcp.ClientOptions{}
	if changed != nil {
		opts.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { changed() }
	}
	way := http.RoundTripper(&http.Transport{MaxIdleConnsPerHost: 2})
	if token != "" {
		way = visitor{token, way}
	}
	return mcp.NewClient(&mcp.Implementation{Name: "outside", Version: "1"}, opts).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: way}, DisableStandaloneSSE: changed == nil}, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
}

func (h *house) endpoint(ctx context.Context) (string, error) {
	addr, err := h.gateway.Addr(ctx)
	if err != nil {
		return "", err
	}
	return "http://" + addr.String() + "/mcp", nil
}

func (r *Outside) calls(ctx context.Context, h *house, token string, s Sync, l Load, cfg OutsideConfig) error {
	url, err := h.endpoint(ctx)
	if err != nil {
		return err
	}
	most := slices.Max(cfg.Callers)
	through, direct := make([]*mcp.ClientSession, most), make([]*mcp.ClientSession, most)
	for i := range most {
		if through[i], err = dial(ctx, url, token, cfg.Protocol, nil); err != nil {
			return err
		}
		defer through[i].Close()
		if direct[i], err = dial(ctx, h.provider.URL(), "", cfg.Protocol, nil); err != nil {
			return err
		}
		defer direct[i].Close()
	}
	if err := until(ctx, "the tool may be called", func() bool { return read(ctx, through[0], "bench__read") == nil }); err != nil {
		return err
	}
	ways := []way{{Direct, func(ctx context.Context, c int) error { return read(ctx, direct[c], "read") }},
		{Pure, func(ctx context.Context, c int) error { return read(ctx, through[c], "bench__read") }}}
	if l == cfg.Loads[0] {
		row, err := stages(ctx, h, through[0])
		if err != nil {
			return err
		}
		row.Sync = s
		r.Stages = append(r.Stages, row)
	}
	for _, n := range cfg.Callers {
		turns, err := measure(ctx, ways, n, Config{Rounds: cfg.Rounds, Round: cfg.Round})
		if err != nil {
			return err
		}
		row := OutsideRow{Sync: s, Load: l, Callers: n}
		var added, times, rates, directRates []float64
		var all, directAll []time.Duration
		for i, t := range turns[1] {
			d := turns[0][i]
			all, directAll = append(all, t.latencies...), append(directAll, d.latencies...)
			rates, directRates = append(rates, t.rate), append(directRates, d.rate)
			added, times = append(added, float64(t.p50()-d.p50())), append(times, d.rate/t.rate)
		}
		slices.Sort(all)
		slices.Sort(directAll)
		row.P50, row.P99, row.DirectP50, row.DirectP99 = Micros(quantile(all, 0.5)), Micros(quantile(all, 0.99)), Micros(quantile(directAll, 0.5)), Micros(quantile(directAll, 0.99))
		row.Rate, row.DirectRate, row.Added, row.Times = median(rates), median(directRates), Micros(median(added)), median(times)
		r.Rows = append(r.Rows, row)
	}
	return nil
}

func read(ctx context.Context, s *mcp.ClientSession, name string) error {
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil && result.IsError {
		err = fmt.Errorf("the tool failed: %+v", result.Content)
	}
	return err
}

// watching is a session that waits for news.
type watching struct {
	session *mcp.ClientSession
	told    chan time.Time
}

// revocations takes the grant away while every session is open, and gives it back, again and again.
func (r *Outside) revocations(ctx context.Context, h *house, token string, s Sync, cfg OutsideConfig) error {
	url, err := h.endpoint(ctx)
	if err != nil {
		return err
	}
	row := RevokedRow{Sync: s, Sessions: cfg.Sessions}
	all := make([]*watching, cfg.Sessions)
	before := inUse()
	for i := range all {
		w := &watching{told: make(chan time.Time, 64)}
		w.session, err = dial(ctx, url, token, cfg.Protocol, func() {
			select {
			case w.told <- time.Now():
			default:
			}
		})
		if err != nil {
			return err
		}
		defer w.session.Close()
		all[i] = w
	}
	row.Bytes = max(inUse()-before, 0) / cfg.Sessions
	if err := until(ctx, "the tool may be called", func() bool { return read(ctx, all[0].session, "bench__read") == nil }); err != nil {
		return err
	}
	var answered, told, denied []time.Duration
	for n := range cfg.Revokes {
		if n > 0 { // a grant that was revoked stays so: another in its place
			path := fmt.Sprintf("/v1/grants/again%d", n)
			if err := h.ask(ctx, http.MethodPut, path, map[string]any{"grant": fmt.Sprintf("grt_again%d", n), "agent": "agt_outside", "selector": map[string]string{"tool": pureTool}, "approval": "never"}, nil); err != nil {
				return err
			}
			if err := until(ctx, "the tool may be called again", func() bool { return read(ctx, all[0].session, "bench__read") == nil }); err != nil {
				return err
			}
		}
		time.Sleep(200 * time.Millisecond) // what was said of the new grant has arrived
		for _, w := range all {
			for len(w.told) > 0 {
				<-w.told
			}
		}
		name := "g0"
		if n > 0 {
			name = fmt.Sprintf("again%d", n)
		}
		began := time.Now()
		if err := h.ask(ctx, http.MethodPost, "/v1/grants/"+name+"/revoke", map[string]string{"reason": "bench"}, nil); err != nil {
			return err
		}
		answered = append(answered, time.Since(began))
		var mu sync.Mutex
		var wg sync.WaitGroup
		var first error
		slots := make(chan struct{}, 64) // more at once would measure the queue of this machine
		for _, w := range all {
			wg.Go(func() {
				slots <- struct{}{}
				asked := time.Now()
				err := read(ctx, w.session, "bench__read")
				for err != nil && problemOf(err) != "denied" && time.Since(asked) < readyWait { // nobody is let in by an instance that may be behind
					err = read(ctx, w.session, "bench__read")
				}
				took := time.Since(asked)
				<-slots
				var when time.Time
				select {
				case when = <-w.told:
				case <-time.After(readyWait):
					err = errors.New("a session was not told that its list changed")
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case first != nil:
				case err == nil:
					first = errors.New("a call went through after the revocation was answered")
				case problemOf(err) != "denied":
					first = fmt.Errorf("after the revocation was answered a call ended as: %w", err)
				}
				denied, told = append(denied, took), append(told, when.Sub(began))
			})
		}
		wg.Wait()
		if first != nil {
			return first
		}
	}
	for into, from := range map[*[3]Micros][]time.Duration{&row.Answered: answered, &row.Told: told, &row.Denied: denied} {
		slices.Sort(from)
		*into = [3]Micros{Micros(quantile(from, 0.5)), Micros(quantile(from, 0.99)), Micros(from[len(from)-1])}
	}
	r.Revoked = append(r.Revoked, row)
	return nil
}

// inUse is the memory of this process that is in use, in bytes.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// WriteTable writes it for people.
func (r Outside) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "sync\tgrants\ttools\tclients\tdirect p50 ms\tp99\tcalls/s\tthrough p50 ms\tp99\tcalls/s\tp50 added ms\tdirect rate / rate\t")
	for _, p := range r.Rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%.0f\t%s\t%s\t%.0f\t%s\t%s\t\n", p.Sync, p.Load.Grants, p.Load.Tools, p.Callers,
			ms(p.DirectP50), ms(p.DirectP99), p.DirectRate, ms(p.P50), ms(p.P99), p.Rate, ms(p.Added), times(p.Times))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nwhere the time of one client's call goes, medians in ms\n\n")
	fmt.Fprintln(w, "sync\tto requested\tto admitted\tto the provider\tto finished\tto the client\t")
	for _, p := range r.Stages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", p.Sync, ms(p.Requested), ms(p.Admitted), ms(p.Provider), ms(p.Finished), ms(p.Client))
	}
	if err := w.Flush(); err != nil || len(r.Revoked) == 0 {
		return err
	}
	fmt.Fprint(out, "\none grant revoked while every session is open, in ms: the revocation answered; each session told that its list changed, from the\nrevocation's start; each session's next call denied, from its own start, 64 at once\n\n")
	fmt.Fprintln(w, "sync\tsessions\tKiB each, both ends\tanswered p50\tmax\ttold p50\tp99\tmax\tdenied p50\tp99\tmax\t")
	for _, p := range r.Revoked {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", p.Sync, p.Sessions, p.Bytes>>10, ms(p.Answered[0]), ms(p.Answered[2]),
			ms(p.Told[0]), ms(p.Told[1]), ms(p.Told[2]), ms(p.Denied[0]), ms(p.Denied[1]), ms(p.Denied[2]))
	}
	return w.Flush()
}
