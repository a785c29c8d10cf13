package fakegithub

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Fault goes wrong once, or Times times, with requests of one method. Faults come in pairs: the same failure before
// the effect and, with AfterEffect, after it, which a caller cannot tell apart.
type Fault struct {
	Method      string
	Times       int             // 0 counts as 1
	Reached     func()          // called when a request has come to the fault
	Until       <-chan struct{} // waits until closed, or until the client gives up
	Status      int             // answers with this instead; 0: the true answer
	Header      http.Header     // is added to that answer, such as Retry-After
	Abort       bool            // breaks the connection instead of answering
	AfterEffect bool            // does all this after the request had its effect
}

// Inject adds a fault. Faults of one method strike in the order in which they were added.
func (s *Server) Inject(f Fault) { s.faults.add(f) }

type faults struct {
	mu   sync.Mutex
	list []Fault
}

func (f *faults) add(one Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.Times = max(one.Times, 1)
	f.list = append(f.list, one)
}

// take is the fault that strikes a request, or nil.
func (f *faults) take(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.list {
		if one := &f.list[i]; one.Method == method && one.Times > 0 {
			one.Times--
			struck := *one
			return &struck
		}
	}
	return nil
}

func (f *faults) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := f.take(r.Method)
		if fault == nil {
			next.ServeHTTP(w, r)
			return
		}
		// A server learns that its client has left only once it has read the body.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !fault.AfterEffect {
			if fault.strike(w, r) {
				next.ServeHTTP(w, r)
			}
			return
		}
		answer := httptest.NewRecorder() // the effect happens now, and its answer waits for the fault
		next.ServeHTTP(answer, r)
		if fault.strike(w, r) {
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()) // the client is gone if this fails
		}
	})
}

// strike waits and fails, and says whether the true answer is still to come.
func (f *Fault) strike(w http.ResponseWriter, r *http.Request) bool {
	if f.Reached != nil {
		f.Reached()
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-r.Context().Done():
			return false
		}
	}
	if f.Abort {
		panic(http.ErrAbortHandler)
	}
	if f.Status == 0 {
		return true
	}
	for name, values := range f.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	refuse(w, f.Status, "injected fault")
	return false
}
