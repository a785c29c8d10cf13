package egress

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// Hop is one request that was made, or refused, for records. A refused one has no Status, and no Addr unless it was
// refused there.
type Hop struct {
	URL    string `json:"url"`
	Status int    `json:"status,omitempty"`
	Addr   string `json:"addr,omitempty"`
}

type hopsKey struct{}

// hops collects; requests of one context may run at once.
type hops struct {
	mu   sync.Mutex
	list []Hop
}

// Record gives a context whose requests are collected, and the way to read them: for callers that hand an
// *http.Client to somebody else's code.
func Record(ctx context.Context) (context.Context, func() []Hop) {
	h := &hops{}
	return context.WithValue(ctx, hopsKey{}, h), func() []Hop {
		h.mu.Lock()
		defer h.mu.Unlock()
		return append([]Hop(nil), h.list...)
	}
}

// record notes one request when it is over: the returned function says how it went.
func record(req *http.Request) (*http.Request, func(status int)) {
	h, ok := req.Context().Value(hopsKey{}).(*hops)
	if !ok {
		return req, func(int) {}
	}
	shown := *req.URL
	shown.User = nil // whoever put a password there did not mean to store it
	hop := Hop{URL: shown.String()}
	var mu sync.Mutex // a dial may outlive the request that asked for it
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		hop.Addr = info.Conn.RemoteAddr().String()
	}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	return req, func(status int) {
		mu.Lock()
		hop.Status = status
		done := hop
		mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = append(h.list, done)
	}
}
