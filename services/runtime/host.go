package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// host is what one script can reach: its agent's tools, as calls, and the hosts of its agent's egress rule.
type host struct {
	s   *Service
	w   *executor.Work
	way *egress.Client // nil: no fetch

	live    func(call.News)
	record  *record
	sending sync.WaitGroup // fetches under way that may change something

	mu    sync.Mutex
	taint []string
	notes []string // what the model has to know of the script's calls, beyond what the script makes of them
}

func newHost(ctx context.Context, s *Service, w *executor.Work, rules []agent.Egress) (*host, error) {
	h := &host{s: s, w: w, live: s.gate.News(w, time.Now)}
	var err error
	if h.record, err = openRecord(ctx, s, w); err != nil || len(rules) == 0 {
		return h, err
	}
	var list []egress.Rule
	for _, r := range rules {
		list = append(list, egress.Rule{Hosts: r.Hosts, Methods: r.Methods, AllowPrivate: r.Private})
	}
	h.way, err = egress.New(list...)
	return h, err
}

func (h *host) close() {
	if h.way != nil {
		h.way.CloseIdleConnections()
	}
}

func (h *host) taints() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.taint)
}

func (h *host) noted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.notes)
}

// noteEdit tells that a call was made with other arguments than the script's. The script itself goes on with the answer.
func (h *host) noteEdit(state *calls.State) {
	if state.Admitted == nil || state.Admitted.Edited == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.notes) < maxNotes {
		h.notes = append(h.notes, fmt.Sprintf("a person edited the arguments of %s; it was called with %.*s", state.Requested.Tool, maxNoted, state.Admitted.Body.Args))
	}
}

// Bounds of the notes beside a script's result.
const (
	maxNotes = 20
	maxNoted = 2 << 10 // bytes of one call's arguments
)

func (h *host) addTaint(origins ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range origins {
		if !slices.Contains(h.taint, o) {
			h.taint = append(h.taint, o)
		}
	}
}

// CallTool implements sandbox.Host. The call's id follows from the script's and the place of the call in it: a script
// that is run again asks for the same call, and finds its outcome. Outcomes are given in the order of the record.
func (h *host) CallTool(ctx context.Context, c sandbox.Call) (json.RawMessage, error) {
	args, err := permit.CanonicalArgs(c.Args)
	if err != nil {
		return nil, err
	}
	callID := h.record.nested(c.Seq)
	wake, forget := h.s.hints.wait(callID)
	defer forget()
	state, err := h.record.ask(c.Seq, c.Tool, permit.Digest(args))
	if err != nil {
		return nil, err
	}
	if state.Requested == nil {
		// A crash right after this leaves a call that is decided and made without us, and found by the next life.
		if err := h.request(ctx, callID, c.Tool, args); err != nil {
			return nil, sandbox.Abort(err)
		}
	}
	err = h.record.turn(ctx, answerID(callID), wake, func() error {
		if state := h.record.state(callID); state.Held != nil && !state.Settled() {
			// A person may take days. The worker ends; the script is run again when they have decided. A fetch that
			// changes something is let come to its end first: cut off, it would be one of unknown outcome.
			h.sending.Wait()
			return sandbox.Abort(waits(callID))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	state = h.record.state(callID)
	if err := h.record.stands(state); err != nil {
		return nil, err
	}
	h.noteEdit(&state)
	return h.outcome(&state)
}

// pollOutcome is how often an outcome is looked for when no hint comes: a held call, for one, sends none.
const pollOutcome = 200 * time.Millisecond

// Answered implements sandbox.Host.
func (h *host) Answered(seq int) { h.record.gave(seq) }

func (h *host) request(ctx context.Context, c id.Call, tool string, args json.RawMessage) error {
	r := h.w.Requested
	taint := slices.Clone(r.Taint)
	for _, o := range h.taints() {
		if !slices.Contains(taint, o) {
			taint = append(taint, o)
		}
	}
	_, err := h.s.deps.Log.Append(ctx, eventlog.Draft{
		Tenant: h.w.Tenant, Key: string(r.Run), Run: r.Run, Actor: string(r.Agent), Correlation: h.w.Correlation,
		ID: id.Derive[id.Event](string(h.w.Tenant), string(c), "requested"),
		Event: call.Requested{
			Call: c, Run: r.Run, Agent: r.Agent, Tool: tool, ArgsDigest: permit.Digest(args), Effect: string(c), Parent: r.Call,
			NotAfter: time.Now().Add(h.s.cfg.CallLife).UTC(), Taint: taint, Hint: h.s.hints.subject(c), Body: call.Args{Args: args},
		},
	})
	return err
}

// outcome is what the script is given for a call that ended.
func (h *host) outcome(state *calls.State) (json.RawMessage, error) {
	switch o := state.Outcome.(type) {
	case call.Finished:
		h.addTaint(o.Taint...)
		value := plain(o.Body.Result)
		if o.ToolError {
			return nil, problem.New(problem.Upstream, "the tool says: %.2000s", value)
		}
		return value, nil
	case call.Refused:
		return nil, problem.New(problem.Code(o.Code), "%s", o.Reason)
	case call.Failed:
		return nil, problem.New(problem.Code(o.Code), "%s", o.Message)
	case call.Cancelled:
		return nil, problem.New(problem.Cancelled, "%s", o.Reason)
	case call.Unknown:
		return nil, problem.New(problem.Unknown, "%s", o.Message)
	}
	return nil, problem.New(problem.Internal, "the call ended in a way that this version does not know")
}

// plain takes an MCP result's own value out of its wrapping: the structured content, or one text, parsed when it is
// JSON. What is wrapped otherwise, or not at all, stays as it is.
func plain(raw json.RawMessage) json.RawMessage {
	var r struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return raw
	}
	if len(r.Structured) > 0 {
		return r.Structured
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" {
		return raw
	}
	if text := []byte(r.Content[0].Text); json.Valid(text) {
		return text
	}
	text, err := json.Marshal(r.Content[0].Text)
	if err != nil {
		return raw
	}
	return text
}

// Fetch implements sandbox.Host. Each fetch is recorded with where it went and what it brought, before the script sees
// that; the page taints what the script makes. A script that is run again is answered from the record, and nothing is
// fetched twice.
func (h *host) Fetch(ctx context.Context, f sandbox.Request) (sandbox.Response, error) {
	if h.way == nil {
		return sandbox.Response{}, problem.New(problem.Denied, "the agent's egress rule allows no fetch")
	}
	req, err := http.NewRequestWithContext(ctx, f.Method, f.URL, bytes.NewReader(f.Body))
	if err != nil {
		return sandbox.Response{}, problem.New(problem.Invalid, "the URL or method of the fetch is not valid")
	}
	for _, field := range f.Header {
		req.Header.Add(field.Name, field.Value)
	}
	digest := requestDigest(f)
	was, sent, recorded, err := h.record.askFetch(f.Seq, digest)
	if err != nil {
		return sandbox.Response{}, err
	}
	if !recorded {
		if was, err = h.fetch(ctx, req, f, digest, sent); err != nil {
			return sandbox.Response{}, sandbox.Abort(err)
		}
	}
	if err := h.record.turn(ctx, fetchAnswer(f.Seq), nil, func() error { return nil }); err != nil {
		return sandbox.Response{}, err
	}
	if recorded {
		if err := h.way.Allows(req); err != nil && was.Code == "" {
			return sandbox.Response{}, err // the agent's rule was changed since
		}
	}
	return h.brought(req, was)
}

// fetch makes a fetch and records it. Its error is one of the record; that of the fetch is in what it gives.
func (h *host) fetch(ctx context.Context, req *http.Request, f sandbox.Request, digest string, sent bool) (script.Fetched, error) {
	var answer sandbox.Response
	var hops []egress.Hop
	err := error(problem.New(problem.Unknown, "the %s was sent, and cut off before its answer was recorded; it is not sent again", f.Method))
	if !sent {
		if f.Method != http.MethodGet && f.Method != http.MethodHead && h.way.Allows(req) == nil {
			h.sending.Add(1)
			defer h.sending.Done()
			// A crash after this makes the fetch one of unknown outcome: it may have been sent, and is not sent again.
			if err := h.say(ctx, script.Fetching{Call: h.w.Admitted.Call, Run: h.w.Admitted.Run, Seq: f.Seq, Method: f.Method, Request: digest}); err != nil {
				return script.Fetched{}, err
			}
		}
		answer, hops, err = h.get(ctx, req)
	}
	record := script.Fetched{Call: h.w.Admitted.Call, Run: h.w.Admitted.Run, Seq: f.Seq, Method: f.Method, Request: digest, Status: answer.Status,
		Bytes: len(answer.Body), Code: string(problem.CodeOf(err)), Body: script.Hops{Hops: []script.Hop{}}}
	for _, hop := range hops {
		record.Body.Hops = append(record.Body.Hops, script.Hop{URL: hop.URL, Address: hop.Addr, Status: hop.Status})
	}
	if len(hops) == 0 {
		record.Body.Hops = append(record.Body.Hops, script.Hop{URL: f.URL})
	}
	if err != nil {
		record.Body.Answer.Message = problem.DetailOf(err).Message
	} else {
		record.Body.Answer = script.Answer{URL: answer.URL, Body: answer.Body}
		for _, field := range answer.Header {
			record.Body.Answer.Header = append(record.Body.Answer.Header, script.Field(field))
		}
	}
	// Recorded before the script sees the answer; one that could not be recorded is not given. A crash before this has
	// a GET made again; a crash after it has the answer found here.
	if err := h.say(ctx, record); err != nil {
		return script.Fetched{}, err
	}
	return record, h.record.look(ctx)
}

// brought is what the script is given for a fetch.
func (h *host) brought(req *http.Request, f script.Fetched) (sandbox.Response, error) {
	answer := f.Body.Answer
	if f.Code != "" {
		return sandbox.Response{}, problem.New(problem.Code(f.Code), "%s", answer.Message)
	}
	h.addTaint("fetch:" + req.URL.Host)
	out := sandbox.Response{Status: f.Status, StatusText: http.StatusText(f.Status), URL: answer.URL, Body: answer.Body}
	for _, field := range answer.Header {
		out.Header = append(out.Header, sandbox.Field(field))
	}
	return out, nil
}

// requestDigest is the SHA-256 of what a fetch asks for, in hex.
func requestDigest(f sandbox.Request) string {
	f.Seq = 0
	raw, err := json.Marshal(f)
	if err != nil {
		return "" // strings and bytes always marshal
	}
	return permit.Digest(raw)
}

func (h *host) say(ctx context.Context, ev schemas.Event) error {
	_, err := h.s.deps.Log.Append(ctx, eventlog.Draft{Event: ev, Tenant: h.w.Tenant, Key: string(h.w.Admitted.Run), Run: h.w.Admitted.Run, Actor: string(h.w.Requested.Agent), Correlation: h.w.Correlation})
	return err
}

func (h *host) get(ctx context.Context, req *http.Request) (sandbox.Response, []egress.Hop, error) {
	resp, hops, err := h.way.Do(ctx, req)
	if err != nil {
		return sandbox.Response{}, hops, err
	}
	defer resp.Body.Close()
	out := sandbox.Response{Status: resp.StatusCode, StatusText: http.StatusText(resp.StatusCode), URL: resp.Request.URL.String()}
	for name, values := range resp.Header {
		for _, v := range values {
			out.Header = append(out.Header, sandbox.Field{Name: name, Value: v})
		}
	}
	slices.SortFunc(out.Header, func(a, b sandbox.Field) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	if out.Body, err = io.ReadAll(resp.Body); err != nil {
		return sandbox.Response{}, hops, err
	}
	return out, hops, nil
}

// Log implements sandbox.Host. Lines are part of the result; whoever follows the run sees them as they come. A script
// that is run again says the same lines again, under the same numbers.
func (h *host) Log(level, line string) { h.live(call.News{Level: level, Message: line}) }
