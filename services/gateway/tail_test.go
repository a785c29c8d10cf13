package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/run"
)

// message is a server-sent event.
type message struct{ id, event, data string }

// open starts a stream; read gives its next message.
func (h *house) open(t *testing.T, path string, header ...string) (read func() message, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", h.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.owner)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") || resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s: %d %v", path, resp.StatusCode, resp.Header)
	}
	stop = func() { cancel(); resp.Body.Close() }
	t.Cleanup(stop)
	lines := bufio.NewReader(resp.Body)
	return func() (m message) {
		t.Helper()
		for {
			text, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			field, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": ")
			switch field {
			case "id":
				m.id = value
			case "event":
				m.event = value
			case "data":
				m.data += value
			case "":
				if m.data != "" {
					return m
				}
				m = message{}
			}
		}
	}, stop
}

type shownEvent struct {
	Stream string
	Seq    uint64
	Kind   string
	Event  *schemas.Envelope
	Raw    []byte
}

func (m message) shown(t *testing.T) (e shownEvent) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.data), &e); err != nil {
		t.Fatalf("%v in %s", err, m.data)
	}
	return e
}

func TestTailGivesAllAndResumes(t *testing.T) {
	h := start(t)
	for range 5 {
		h.record(t, "run_1", "mem_owner", run.ModelRequested{Run: "run_1"})
	}
	read, stop := h.open(t, "/v1/events/tail?from=start")
	var last message
	for want := uint64(1); want <= 3; want++ {
		last = read()
		if e := last.shown(t); e.Seq != want || e.Event.Kind() != "run.model_requested" {
			t.Fatalf("%d: %+v", want, last)
		}
	}
	stop()
	h.record(t, "run_1", "mem_owner", run.Completed{Run: "run_1"})

	// What a reader reconnects with counts, not where it began.
	read, _ = h.open(t, "/v1/events/tail?from=start", "Last-Event-ID", last.id)
	for want := uint64(4); want <= 6; want++ {
		if e := read().shown(t); e.Seq != want {
			t.Fatalf("%d: %+v", want, e)
		}
	}
	h.record(t, "run_1", "mem_owner", run.Completed{Run: "run_1"})
	if e := read().shown(t); e.Seq != 7 {
		t.Fatalf("%+v", e)
	}
}

func TestTailBeginsNow(t *testing.T) {
	h := start(t)
	h.record(t, "run_1", "mem_owner", run.ModelRequested{Run: "run_1"})
	read, _ := h.open(t, "/v1/events/tail")
	buskit.Eventually(t, "the tail knows where now is", func() bool { _, ok := h.last("events"); return ok })
	h.record(t, "run_2", "mem_owner", run.Completed{Run: "run_2"})
	ledger := h.bus.Conn(t, string(schemas.Ledger))
	if err := ledger.NC.Publish(bus.LiveSubject("tnt_main.ledger"), nil); err != nil {
		t.Fatal(err)
	}
	if e := read().shown(t); e.Seq != 2 {
		t.Fatalf("%+v", e)
	}
}

func TestTailFilters(t *testing.T) {
	h := start(t)
	h.record(t, "run_1", "agt_a", call.Requested{Run: "run_1"})
	h.record(t, "run_2", "agt_b", call.Requested{Run: "run_2"})
	h.record(t, "run_2", "agt_b", run.Completed{Run: "run_2"})
	h.record(t, "run_2", "agt_a", call.Requested{Run: "run_2"})
	h.record(t, "run_3", "agt_a", call.Requested{Run: "run_3"})
	read, _ := h.open(t, "/v1/events/tail?from=start&run=run_2&kind=call.*&actor=agt_a")
	if m := read(); m.shown(t).Seq != 4 || m.id != "0:4" {
		t.Fatalf("%+v", m)
	}
}

func TestTailSaysThatTheLedgerIsAwayAndSkipsNothing(t *testing.T) {
	h := start(t)
	h.record(t, "run_1", "mem_owner", run.ModelRequested{Run: "run_1"})
	read, _ := h.open(t, "/v1/events/tail?after=0:0")
	if read().shown(t).Seq != 1 {
		t.Fatal("no first event")
	}
	h.setAway(true)
	if m := read(); m.event != "notice" || m.id != "" || !strings.Contains(m.data, "unavailable") {
		t.Fatalf("%+v", m)
	}
	h.record(t, "run_1", "mem_owner", run.Completed{Run: "run_1"})
	h.setAway(false)
	if m := read(); m.event != "notice" {
		t.Fatalf("%+v", m)
	}
	if e := read().shown(t); e.Seq != 2 {
		t.Fatalf("%+v", e)
	}
}

func TestTailGivesWhatIsNoJSONAsBytes(t *testing.T) {
	h := start(t)
	for _, raw := range []string{"\x00no json", "{\"a\":\"\xff\"}"} {
		h.mu.Lock()
		h.recorded = append(h.recorded, ask.Event{Stream: string(schemas.Activity), Seq: uint64(len(h.recorded) + 1), Subject: "ew.v1.tnt_main.x.y.z", Raw: []byte(raw)})
		h.mu.Unlock()
	}
	read, _ := h.open(t, "/v1/events/tail?from=start")
	for _, want := range []string{"\x00no json", "{\"a\":\"\xff\"}"} {
		if e := read().shown(t); e.Event != nil || string(e.Raw) != want {
			t.Errorf("%+v", e)
		}
	}
}

func TestOpenTailsAreBounded(t *testing.T) {
	h := start(t)
	for range 20 {
		h.open(t, "/v1/events/tail")
	}
	if got := h.call(t, h.owner, "GET", "/v1/events/tail", ""); got.status != 429 {
		t.Error(got)
	}
}

// What a call of a followed run says is passed on while it says it: to followers of that run, of that tenant, and not to
// those who want one kind of event only.
func TestNewsOfCalls(t *testing.T) {
	h := start(t)
	broker := h.bus.Conn(t, string(schemas.Toolbroker))
	say := func(tenant, subject string, said any) {
		t.Helper()
		raw, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.NC.Publish(bus.LiveSubject(tenant+"."+subject+".up"), raw); err != nil {
			t.Fatal(err)
		}
	}
	read, stop := h.open(t, "/v1/events/tail?run=run_1&from=start")
	defer stop()
	cookie := h.session(t)
	page, leave := h.open(t, "/runs/run_1/live", "Cookie", cookie.String())
	defer leave()
	n := 0
	heard := func(read func() message) message {
		t.Helper()
		got := make(chan message, 1)
		go func() { got <- read() }()
		var m message
		buskit.Eventually(t, "news", func() bool {
			n++
			say("tnt_other", "call_1", call.News{N: n, Call: "call_1", Run: "run_1", Message: "of another tenant"})
			say("tnt_main", "call_2", call.News{N: n, Call: "call_2", Run: "run_2", Message: "of another run"})
			say("tnt_main", "run_1", struct{ Delta string }{"of a model"})
			say("tnt_main", "call_1", "garbage")
			say("tnt_main", "call_1", call.News{N: n, Call: "call_1", Run: "run_1", Tool: "tickets.copy", Progress: 3, Total: 10, Message: "copying <b>\r\ndata: forged"})
			select {
			case m = <-got:
				return true
			default:
				return false
			}
		})
		return m
	}
	m := heard(read)
	var said call.News
	if err := json.Unmarshal([]byte(m.data), &said); err != nil || m.event != "news" || m.id != "" || said.Run != "run_1" || said.Progress != 3 || !strings.HasPrefix(said.Message, "copying <b>") {
		t.Errorf("%+v, %v", m, err)
	}
	if m := heard(page); m.event != "notice" || !strings.HasPrefix(m.data, "tickets.copy: 30% copying <b>") || strings.Contains(m.data, "\n") {
		t.Errorf("the page is told %+v", m)
	}
	quiet, end := h.open(t, "/v1/events/tail?run=run_1&kind=call.*&from=start")
	defer end()
	for i := range 20 {
		say("tnt_main", "call_1", call.News{N: i, Call: "call_1", Run: "run_1"})
	}
	h.record(t, "run_1", "service:toolbroker", call.Finished{Run: "run_1", Tool: "tickets.copy"})
	if m := quiet(); m.event != "" {
		t.Errorf("a reader of events is told %+v", m)
	}
}
