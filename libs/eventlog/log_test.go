package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

const tenant = id.Tenant("tnt_a")

func created(r id.Run, event id.Event) eventlog.Draft {
	return eventlog.Draft{Event: run.Created{Run: r, Body: run.Prompt{Text: "do it"}}, Tenant: tenant, Key: string(r), Run: r, Actor: "mem_x", ID: event}
}

func TestAppendAfterChecksTheWholeAggregate(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r := id.New[id.Run]()

	first, err := log.AppendAfter(t.Context(), created(r, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	// Another kind on the same aggregate: the expectation covers all kinds.
	failed := eventlog.Draft{Event: run.Failed{Run: r, Code: "internal"}, Tenant: tenant, Key: string(r), Run: r}
	if _, err := log.AppendAfter(t.Context(), failed, 0); problem.CodeOf(err) != problem.Conflict {
		t.Fatalf("stale append: %v, want conflict", err)
	}
	if _, err := log.AppendAfter(t.Context(), failed, first); err != nil {
		t.Fatal(err)
	}
}

// A retry of a stored event with the same expectation is answered "wrong last sequence", not "duplicate".
func TestRetryOfWhatIsStoredSucceeds(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r, ev := id.New[id.Run](), id.New[id.Event]()
	first, err := log.AppendAfter(t.Context(), created(r, ev), 0)
	if err != nil {
		t.Fatal(err)
	}
	again, err := log.AppendAfter(t.Context(), created(r, ev), 0)
	if err != nil || again != first {
		t.Fatalf("retry: seq %d, %v; want %d", again, err, first)
	}
	if n := count(t, log, r); n != 1 {
		t.Fatalf("%d events stored, want 1", n)
	}
}

func TestRacersHaveOneWinner(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r := id.New[id.Run]()
	var wg sync.WaitGroup
	results := make(chan error, 16)
	for range 16 {
		wg.Go(func() {
			_, err := log.AppendAfter(t.Context(), created(r, ""), 0)
			results <- err
		})
	}
	wg.Wait()
	close(results)
	won := 0
	for err := range results {
		switch problem.CodeOf(err) {
		case "":
			won++
		case problem.Conflict:
		default:
			t.Errorf("loser: %v", err)
		}
	}
	if won != 1 || count(t, log, r) != 1 {
		t.Fatalf("%d winners, %d events; want 1 and 1", won, count(t, log, r))
	}
}

// With the bus away, nobody is told that something is recorded, and nothing is recorded afterwards.
func TestAppendWithoutBusIsNotStoredLater(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r := id.New[id.Run]()
	b.Server.Halt()
	_, err := log.AppendAfter(t.Context(), created(r, ""), 0)
	if code := problem.CodeOf(err); code != problem.Pending && code != problem.AuditUnavailable {
		t.Fatalf("append without a bus: %v", err)
	}
	if err := b.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the bus is back", func() bool {
		_, err := log.AppendAfter(t.Context(), created(id.New[id.Run](), ""), 0)
		return err == nil
	})
	if n := count(t, log, r); n != 0 {
		t.Fatalf("%d events stored after the caller was told otherwise", n)
	}
}

func TestDenialHasItsOwnCode(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "webhooks"))
	r := id.New[id.Run]()
	_, err := log.AppendAfter(t.Context(), created(r, ""), 0)
	if problem.CodeOf(err) != problem.BusDenied {
		t.Fatalf("webhooks says run.created: %v, want bus_denied", err)
	}
}

func TestLargeBodiesGoToTheBlobStore(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	for _, size := range []int{128 << 10, 200 << 10, 1 << 20, 34 << 20} {
		r := id.New[id.Run]()
		text := strings.Repeat("x", size)
		d := created(r, "")
		d.Event = run.Created{Run: r, Body: run.Prompt{Text: text}}
		if _, err := log.AppendAfter(t.Context(), d, 0); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for s, err := range log.Read(t.Context(), schemas.Activity, schemas.SubjectOf(tenant, "run.created", string(r), "").Filter(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			got, err := eventlog.Decode[run.Created](s)
			if err != nil {
				t.Fatal(err)
			}
			if got.Body.Text != text {
				t.Errorf("%d bytes: body differs", size)
			}
			if len(s.Raw) > 8<<10 {
				t.Errorf("%d bytes: %d on the stream", size, len(s.Raw))
			}
		}
	}
	r := id.New[id.Run]()
	d := created(r, "")
	d.Event = run.Created{Run: r, Body: run.Prompt{Text: strings.Repeat("x", 41<<20)}}
	if _, err := log.AppendAfter(t.Context(), d, 0); problem.CodeOf(err) != problem.TooLarge {
		t.Fatalf("41 MiB: %v, want too_large", err)
	}
}

// Whoever reads may take longer over an event than the stream may take to answer.
func TestSlowReader(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	const events = 20
	for range events {
		if _, err := log.AppendAfter(t.Context(), created(id.New[id.Run](), ""), 0); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range log.Read(t.Context(), schemas.Activity, "ew.v1.*.run.*.created", 1) {
		if err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		if n++; n == 1 {
			time.Sleep(2500 * time.Millisecond)
		}
	}
	if n != events {
		t.Errorf("%d events of %d", n, events)
	}
}

func TestReadSkipsWhatCannotBeDecoded(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r := id.New[id.Run]()
	if _, err := log.AppendAfter(t.Context(), created(r, ""), 0); err != nil {
		t.Fatal(err)
	}
	subject := schemas.SubjectOf(tenant, "run.created", string(r), "").String()
	for _, garbage := range []string{"", "{", "null", `{"specversion":"1.0"}`, "\x00\xff"} {
		if _, err := b.Boot.JS.Publish(t.Context(), subject, []byte(garbage)); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, log, r); n != 1 {
		t.Fatalf("%d events read, want 1", n)
	}
}

func TestReadPages(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "agentloop"))
	r := id.New[id.Run]()
	const n = 600 // over two pages
	for i := range n {
		d := eventlog.Draft{Event: call.Requested{Call: id.Call(fmt.Sprintf("call_%d", i)), Run: r}, Tenant: tenant, Key: string(r)}
		if _, err := log.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []uint64
	for s, err := range log.Read(t.Context(), schemas.Activity, "ew.v1.tnt_a.call."+string(r)+".>", 1) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s.Seq)
	}
	if len(seqs) != n || !slices.IsSorted(seqs) {
		t.Fatalf("%d events read, want %d in order", len(seqs), n)
	}
}

func TestViewHearsEverythingAndKnowsWhenItDoesNot(t *testing.T) {
	b := buskit.Start(t)
	gateway := b.Conn(t, "gateway")
	log := eventlog.New(gateway)
	define := func(name, text string) uint64 {
		seq, err := log.Append(t.Context(), eventlog.Draft{Tenant: tenant, Key: "agt_" + name, Actor: "mem_x",
			Event: agent.Defined{Agent: id.Agent("agt_" + name), Body: agent.Body{Instructions: text}}})
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	define("old", "first")
	define("old", "second")
	last := define("other", "x")

	var mu sync.Mutex
	heard := map[string]string{}
	conn := b.Conn(t, "toolbroker")
	view := eventlog.NewView(conn, eventlog.New(conn), b.Log, func(s eventlog.Stored) {
		d, err := eventlog.Decode[agent.Defined](s)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		heard[s.At.Key] = d.Body.Instructions
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = view.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })

	if err := view.Wait(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	next := define("new", "live")
	if err := view.Wait(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := view.Current(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	got, err := json.Marshal(heard)
	mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"agt_new":"live","agt_old":"second","agt_other":"x"}`; !bytes.Equal(got, []byte(want)) {
		t.Errorf("heard %s, want %s", got, want)
	}

	b.Server.Halt()
	buskit.Eventually(t, "the view knows that it is not current", func() bool { return view.Current() != nil })
	if err := b.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the view is current again", func() bool { return view.Current() == nil })
	var after uint64
	buskit.Eventually(t, "an append", func() bool {
		seq, err := log.Append(t.Context(), eventlog.Draft{Tenant: tenant, Key: "agt_new", Event: agent.Defined{Agent: "agt_new", Body: agent.Body{Instructions: "after"}}})
		after = seq
		return err == nil
	})
	wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := view.Wait(wait, after); err != nil {
		t.Fatal(err)
	}
}

// What is stored while a view starts is either heard or not claimed to be: a barrier that trusted the claim would say of a
// revocation that every instance knows it.
func TestViewThatStartsClaimsNoMoreThanItHeard(t *testing.T) {
	b := buskit.Start(t)
	gateway, conn := b.Conn(t, "gateway"), b.Conn(t, "toolbroker")
	log := eventlog.New(gateway)
	var mu sync.Mutex
	stored := map[uint64]string{}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("agt_%d", n)
			seq, err := log.Append(ctx, eventlog.Draft{Tenant: tenant, Key: key, Event: agent.Defined{Agent: id.Agent(key)}})
			if err != nil {
				continue
			}
			mu.Lock()
			stored[seq] = key
			mu.Unlock()
			time.Sleep(time.Millisecond) // or no view that is made under the race detector keeps up
		}
	})
	for range 30 {
		heard := map[string]bool{}
		view := eventlog.NewView(conn, eventlog.New(conn), b.Log, func(s eventlog.Stored) {
			mu.Lock()
			defer mu.Unlock()
			heard[s.At.Key] = true
		})
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { _ = view.Run(ctx) })
		if err := view.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		claimed := view.Seq()
		mu.Lock()
		for seq, key := range stored {
			if seq <= claimed && !heard[key] {
				t.Errorf("%d is claimed, and %d was not heard", claimed, seq)
			}
		}
		mu.Unlock()
		stop()
		following.Wait()
	}
}

func count(t *testing.T, log *eventlog.Log, r id.Run) int {
	t.Helper()
	n := 0
	for _, err := range log.Read(t.Context(), schemas.Activity, schemas.SubjectOf(tenant, "run.created", string(r), "").Filter(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A control event's body outlives the activity's: it does not stand where bodies age out. Equal bodies of activity stand
// once a day.
func TestBodiesStandAsLongAsTheirEvents(t *testing.T) {
	b := buskit.Start(t)
	log := eventlog.New(b.Conn(t, "gateway"))
	text := strings.Repeat("y", 300<<10)
	for range 2 {
		if _, err := log.Append(t.Context(), eventlog.Draft{Tenant: tenant, Key: "agt_big", Event: agent.Defined{Agent: "agt_big", Body: agent.Body{Instructions: text}}}); err != nil {
			t.Fatal(err)
		}
	}
	loop := eventlog.New(b.Conn(t, "agentloop"))
	for range 2 {
		r := id.New[id.Run]()
		d := created(r, "")
		d.Event = run.Created{Run: r, Body: run.Prompt{Text: text}}
		if _, err := loop.AppendAfter(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	for stream, want := range map[string]time.Duration{bus.KeptStream: 0, bus.BlobStream: schemas.Activity.Retention() + 48*time.Hour} {
		s, err := b.Boot.JS.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		if info := s.CachedInfo(); info.Config.MaxAge != want || info.State.Msgs != 1 {
			t.Errorf("%s keeps %d chunks for %s, want 1 for %s", stream, info.State.Msgs, info.Config.MaxAge, want)
		}
	}
	for s, err := range loop.Read(t.Context(), schemas.Control, "ew.v1.tnt_a.agent.agt_big.>", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if got, err := eventlog.Decode[agent.Defined](s); err != nil || got.Body.Instructions != text {
			t.Errorf("the agent's instructions came back otherwise (%v)", err)
		}
	}
}
