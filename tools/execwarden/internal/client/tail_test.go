package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// served is a client of a server, with short waits.
func served(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(Config{URL: srv.URL, Token: "ewt_x", Reconnect: Reconnect{First: time.Millisecond, Most: 5 * time.Millisecond, Idle: 200 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reader keeps what it is told, and ends after so many events.
type reader struct {
	enough  int
	events  []uint64
	notices []string
	gaps    []string
}

var errEnough = errors.New("enough")

func (r *reader) Event(e Event, _ Cursor) error {
	r.events = append(r.events, e.Seq)
	if len(r.events) == r.enough {
		return errEnough
	}
	return nil
}
func (r *reader) Notice(d problem.Detail) { r.notices = append(r.notices, d.Message) }
func (r *reader) Gap(d problem.Detail)    { r.gaps = append(r.gaps, d.Message) }

func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, text)
	_ = http.NewResponseController(w).Flush()
}

func message(seq uint64) string {
	return fmt.Sprintf("id: 0:%d\ndata: {\"stream\":\"EW_ACTIVITY\",\"seq\":%d}\n\n", seq, seq)
}

// TestTailGoesOn loses the connection again and again: at once, in the middle of a message, after a heartbeat that
// moved the place, and without a word. Each event comes once.
func TestTailGoesOn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Query().Get("after"))
		n := len(asked)
		mu.Unlock()
		switch n {
		case 1:
			stream(w, message(5)+message(6))
		case 2:
			stream(w, message(6)+message(7)+"id: 0:8\ndata: {\"stream\":\"EW_ACTI")
		case 3:
			problem.WriteHTTP(w, problem.New(problem.Unavailable, "starting"))
		case 4:
			stream(w, ": heartbeat\nid: 0:20\n\n")
		case 5:
			stream(w, message(21))
			<-r.Context().Done() // and never says anything again
		case 6:
			stream(w, "event: gap\nid: 0:30\ndata: {\"message\":\"9 events are gone\"}\n\n"+message(31))
		}
	})
	got := &reader{enough: 5}
	at, err := c.Tail(t.Context(), Filter{}, Cursor{Activity: 4}, got)
	if !errors.Is(err, errEnough) {
		t.Fatalf("got %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []uint64{5, 6, 7, 21, 31}; !slices.Equal(got.events, want) {
		t.Errorf("events %v, want %v", got.events, want)
	}
	if want := []string{"0:4", "0:6", "0:7", "0:7", "0:20", "0:21"}; !slices.Equal(asked, want) {
		t.Errorf("asked after %v, want %v", asked, want)
	}
	if want := []string{"9 events are gone"}; !slices.Equal(got.gaps, want) {
		t.Errorf("gaps %v", got.gaps)
	}
	// What the reader did not take is not passed: it comes again.
	if want := (Cursor{Activity: 30}); at != want {
		t.Errorf("at %v, want %v", at, want)
	}
}

// TestTailEnds is given what waiting does not change.
func TestTailEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		want  problem.Code
	}{
		"the first connection fails": {func(w http.ResponseWriter, _ *http.Request) {
			problem.WriteHTTP(w, problem.New(problem.Unavailable, "no"))
		}, problem.Unavailable},
		"the token is not valid": {func(w http.ResponseWriter, _ *http.Request) {
			problem.WriteHTTP(w, problem.New(problem.Unauthenticated, "no"))
		}, problem.Unauthenticated},
		"the token is not valid any more": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "event: notice\ndata: {\"code\":\"unauthenticated\",\"message\":\"gone\"}\n\n")
		}, problem.Unauthenticated},
		"no event stream": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>")
		}, problem.Internal},
		"a place that cannot be read": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "id: abc\ndata: {}\n\n")
		}, problem.Internal},
		"a message that cannot be read": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "id: 0:1\ndata: [\n\n")
		}, problem.Internal},
		"a message without end": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			line := "data: " + strings.Repeat("x", 1<<20) + "\n"
			for r.Context().Err() == nil {
				fmt.Fprint(w, line)
			}
		}, problem.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := served(t, tc.serve).Tail(t.Context(), Filter{}, Cursor{}, &reader{})
			if got := problem.CodeOf(err); got != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestTailIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, message(3))
		cancel()
		<-r.Context().Done()
	})
	_, err := c.Tail(ctx, Filter{}, Cursor{}, &reader{})
	if problem.CodeOf(err) != problem.Cancelled {
		t.Errorf("got %v", err)
	}
}

// TestFrames reads what the WHATWG's definition of event streams allows.
func TestFrames(t *testing.T) {
	t.Parallel()
	in := newFrames(strings.NewReader("data:a\r\ndata: b\r\nretry: 5\nunknown: x\n\nid: 1:2\nevent: gap\ndata\n\n: only a comment\n\ndata: cut"))
	var got []string
	for {
		f, err := in.next()
		if err != nil {
			break
		}
		raw, _ := json.Marshal([]string{f.name, string(f.data), f.id})
		got = append(got, string(raw))
	}
	want := []string{`["","a\nb",""]`, `["gap","","1:2"]`, `["","",""]`}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add("id: 1:2\ndata: {}\n\n")
	f.Add(":\r\n\r\ndata\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := newFrames(strings.NewReader(text))
		for n := 0; ; n++ {
			if _, err := in.next(); err != nil {
				return
			}
			if n > len(text) {
				t.Fatal("more messages than bytes")
			}
		}
	})
}
