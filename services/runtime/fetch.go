package runtime

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// openWay makes the way out that the agent's rules allow. No rule allows this deployment's own API.
func (h *host) openWay(rules []agent.Egress) (err error) {
	if len(rules) == 0 {
		return nil
	}
	var list []egress.Rule
	for _, r := range rules {
		r = r.WithDefaults()
		h.rules = append(h.rules, r)
		list = append(list, egress.Rule{
			Hosts: r.Hosts, Methods: r.Methods, AllowPrivate: r.Private, Deny: h.s.cfg.denied(),
			MaxBytes: int64(r.ResponseBytes), MaxRequest: int64(r.RequestBytes), Timeout: time.Duration(r.TimeoutMS) * time.Millisecond,
		})
	}
	h.way, err = egress.New(list...)
	return err
}

// Fetch implements sandbox.Host. Each fetch is recorded with where it went and what it brought, before the script sees
// it; a script that is run again is given what is recorded. The page taints what the script makes.
func (h *host) Fetch(ctx context.Context, f sandbox.Request) (sandbox.Response, error) {
	earlier, err := h.earlier(ctx)
	if err != nil {
		return sandbox.Response{}, sandbox.Abort(err)
	}
	if err := h.order.askElse(f.Seq, aFetch); err != nil {
		return sandbox.Response{}, err
	}
	now := script.Fetched{Call: h.w.Admitted.Call, Run: h.w.Admitted.Run, Seq: f.Seq, Digest: digestOf(f), Method: f.Method}
	req, refused := h.admitted(ctx, f) // counted, also when the answer is recorded
	if e, ok := earlier.fetched[f.Seq]; ok {
		before, err := restored[script.Fetched](ctx, h.s.deps.Log, e)
		switch {
		case err != nil:
			return sandbox.Response{}, sandbox.Abort(err)
		case before.Digest != now.Digest:
			return sandbox.Response{}, diverged("request %d was another fetch before", f.Seq)
		}
		return inTurn(ctx, h.order, f.Seq, func() (sandbox.Response, error) {
			if refused != nil && before.Code == "" {
				return sandbox.Response{}, refused // the agent's rule was changed since
			}
			return h.again(ctx, before)
		})
	}
	begun, ok := earlier.fetching[f.Seq]
	changes := f.Method != http.MethodGet && f.Method != http.MethodHead
	switch {
	case ok && begun != now.Digest:
		return sandbox.Response{}, diverged("request %d was another fetch before", f.Seq)
	case ok && changes: // an earlier attempt ended between the request and the record of its answer
		refused = problem.New(problem.Unknown, "this %s may have been made before the script was cut off; it is not made again", f.Method)
	case refused == nil && changes:
		// A held call lets this come to its end before it ends the worker.
		h.sending.Add(1)
		defer h.sending.Done()
		if err := h.begin(ctx, f, now); err != nil {
			return sandbox.Response{}, sandbox.Abort(err)
		}
		// A crash from here on leaves the script not knowing whether the request was made.
	}
	now.Body = script.Hops{Hops: []script.Hop{{URL: shown(f.URL)}}}
	err = refused
	if err == nil {
		err = h.get(ctx, req, &now)
	}
	if ctx.Err() != nil { // the script is over, and nobody reads the answer
		if refused == nil && !changes {
			h.cutOff(ctx, f, now)
		}
		return sandbox.Response{}, ctx.Err()
	}
	if err != nil {
		d := problem.DetailOf(err)
		now.Code, now.Body.Message, now.Body.Answer = string(d.Code), d.Message, nil
	}
	if err := h.keep(ctx, now); err != nil {
		return sandbox.Response{}, sandbox.Abort(err) // what could not be recorded is not given
	}
	return inTurn(ctx, h.order, f.Seq, func() (sandbox.Response, error) { return h.given(now) })
}

// begin records that a request is, or was, about to be made.
func (h *host) begin(ctx context.Context, f sandbox.Request, now script.Fetched) error {
	_, err := h.s.deps.Log.Append(ctx, h.draft(script.Fetching{Call: now.Call, Run: now.Run, Seq: f.Seq, Digest: now.Digest, Method: f.Method,
		Body: script.Asked{URL: shown(f.URL)}}, strconv.Itoa(f.Seq)))
	return err
}

// cutOff records a request whose script ended before its answer came: what a URL carries is out all the same. A crash
// loses that of a GET alone, and the script, run again, asks and is recorded again.
func (h *host) cutOff(ctx context.Context, f sandbox.Request, now script.Fetched) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOffWithin)
	defer cancel()
	if err := h.begin(ctx, f, now); err != nil {
		h.s.log.Error("a fetch that was cut off is not recorded", "call", now.Call, "method", f.Method, "err", err)
	}
}

// cutOffWithin is how long a script that is over may take to record that.
const cutOffWithin = 2 * time.Second

// inFetched is the largest page that stands in its event, in bytes.
const inFetched = 8 << 10

// keep records a fetch, its page first: a crash between the two leaves a page that nobody cites, which ages out.
func (h *host) keep(ctx context.Context, f script.Fetched) (err error) {
	if a := f.Body.Answer; a != nil && len(a.Body) > inFetched {
		short := *a
		if short.Blob, err = h.s.deps.Log.PutUpload(ctx, h.w.Tenant, a.Body); err != nil {
			return err
		}
		short.Body, f.Body.Answer = nil, &short
	}
	_, err = h.s.deps.Log.Append(ctx, h.draft(f, strconv.Itoa(f.Seq)))
	return err
}

// again gives what is recorded.
func (h *host) again(ctx context.Context, f script.Fetched) (sandbox.Response, error) {
	if a := f.Body.Answer; a != nil {
		h.take(f.Bytes)
		if a.Blob != "" {
			var err error
			if a.Body, err = h.s.deps.Log.GetUpload(ctx, h.w.Tenant, a.Blob); err != nil {
				return sandbox.Response{}, sandbox.Abort(err)
			}
		}
	}
	return h.given(f)
}

// admitted makes the request of a fetch, and counts it by its rule.
func (h *host) admitted(ctx context.Context, f sandbox.Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, f.Method, f.URL, bytes.NewReader(f.Body))
	if err != nil {
		return nil, problem.New(problem.Invalid, "the URL or method of the fetch is not valid")
	}
	for _, field := range f.Header {
		req.Header.Add(field.Name, field.Value)
	}
	if h.way == nil { // it had a rule in an earlier life, at most
		return nil, problem.New(problem.Denied, "the agent's egress rule allows no fetch")
	}
	i, err := h.way.RuleOf(req)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made[i]++; h.made[i] > h.rules[i].Fetches {
		return nil, problem.New(problem.Denied, "fetch blocked: the rule for %s allows %d fetches in one script", req.URL.Host, h.rules[i].Fetches)
	}
	return req, nil
}

// get makes the request and notes how it went.
func (h *host) get(ctx context.Context, req *http.Request, into *script.Fetched) error {
	resp, hops, err := h.way.Do(ctx, req)
	if len(hops) > 0 {
		into.Body.Hops = nil
	}
	for _, hop := range hops {
		into.Body.Hops = append(into.Body.Hops, script.Hop{URL: hop.URL, Address: hop.Addr, Status: hop.Status})
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	into.Status = resp.StatusCode
	answer := &script.Answer{URL: resp.Request.URL.String()}
	for name, values := range resp.Header {
		for _, v := range values {
			answer.Header = append(answer.Header, script.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(answer.Header, func(a, b script.Header) int { return cmp.Compare(a.Name, b.Name) })
	answer.Body, err = io.ReadAll(resp.Body)
	into.Bytes, into.Body.Answer = len(answer.Body), answer
	if err == nil && !h.take(len(answer.Body)) {
		err = problem.New(problem.TooLarge, "the pages of one script have %d bytes at most", maxPages)
	}
	return err
}

// maxPages is what all pages that one script fetches may have, in bytes: they are kept in the record.
const maxPages = 16 << 20

// take counts a page, unless it is too much.
func (h *host) take(size int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pages+size > maxPages {
		return false
	}
	h.pages += size
	return true
}

// given is what the script sees of a recorded fetch.
func (h *host) given(f script.Fetched) (sandbox.Response, error) {
	for _, hop := range f.Body.Hops { // also of a fetch that failed then: where a server led to is in the message
		if u, err := url.Parse(hop.URL); err == nil && hop.Status != 0 {
			h.addTaint("fetch:" + u.Host)
		}
	}
	if f.Code != "" || f.Body.Answer == nil {
		return sandbox.Response{}, problem.New(problem.Code(f.Code), "%s", f.Body.Message)
	}
	a := f.Body.Answer
	out := sandbox.Response{Status: f.Status, StatusText: http.StatusText(f.Status), URL: a.URL, Body: a.Body}
	for _, line := range a.Header {
		out.Header = append(out.Header, sandbox.Field{Name: line.Name, Value: line.Value})
	}
	return out, nil
}

func digestOf(f sandbox.Request) string {
	f.Seq = 0
	raw, _ := json.Marshal(f) // text and bytes
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// shown is a URL for the record: without a password, and no longer than one is.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	u.User = nil
	return cut(u.String(), 8<<10)
}
