package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// Watch sees how far the HTTP requests of one call got: what no connection was found for had no effect, whatever the
// error says.
type Watch struct {
	sent   atomic.Bool
	status atomic.Int64
	spared atomic.Pointer[error]
}

type watchKey struct{}

// Watched gives a context whose requests are watched.
func Watched(ctx context.Context) (context.Context, *Watch) {
	w := &Watch{}
	ctx = context.WithValue(ctx, watchKey{}, w)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { w.sent.Store(true) }}), w
}

// Unwatched gives the context of a request that belongs to a watched call and says nothing of what became of it.
func Unwatched(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchKey{}, nil)
}

// Sent says whether any of the requests may have reached the provider.
func (w *Watch) Sent() bool { return w.sent.Load() }

// Refused says whether the provider answered the last request with a status that says it did nothing, or the way out
// knows that it did nothing. It needs Statuses on the way.
func (w *Watch) Refused() bool {
	status := w.status.Load()
	return w.Spared() != nil || status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// Spared is why the way out did not let the last request have an effect, nil when it did.
func (w *Watch) Spared() error {
	if err := w.spared.Load(); err != nil {
		return *err
	}
	return nil
}

// Statuses is a way out that notes the status of each answer for whoever watches the request.
type Statuses struct{ Next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s Statuses) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Next.RoundTrip(r)
	if w, ok := r.Context().Value(watchKey{}).(*Watch); ok {
		w.status.Store(0)
		w.spared.Store(nil)
		var h harmless
		if errors.As(err, &h) {
			spared := error(h)
			w.spared.Store(&spared)
		}
		if err == nil {
			w.status.Store(int64(resp.StatusCode))
		}
	}
	return resp, err
}
