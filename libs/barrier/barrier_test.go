package barrier_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is a service with no more than a view and its barrier.
type instance struct {
	view *eventlog.View
	stop func()
	mu   sync.Mutex // held, it keeps the view from applying anything

	applying sync.Mutex
	current  []error         // what the view said of itself as each event was applied
	heard    map[string]bool // the keys of what was applied
}

func start(t *testing.T, k *servicekit.Kit, s schemas.Service) *instance {
	t.Helper()
	i := &instance{heard: map[string]bool{}}
	d := k.Deps(s)
	i.view = d.View(func(e eventlog.Stored) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.applying.Lock()
		defer i.applying.Unlock()
		i.current = append(i.current, i.view.Current())
		i.heard[e.At.Key] = true
	})
	answers, err := rpc.Serve(d.Conn, s, "0.0.0", d.Logger, barrier.Answer(i.view))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = i.view.Run(ctx) })
	i.stop = sync.OnceFunc(func() { cancel(); answers.Close(); running.Wait() })
	t.Cleanup(i.stop)
	if err := i.view.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return i
}

func change(k *servicekit.Kit) uint64 {
	return k.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.External}})
}

func TestEveryInstanceHears(t *testing.T) {
	k := servicekit.Start(t)
	asker := k.Conn(t, string(schemas.Gateway))
	if done, err := barrier.Wait(t.Context(), asker, servicekit.Owner(), change(k)); err != nil || done.Heard != 0 || len(done.Fenced) != 0 {
		t.Fatalf("with nobody there: %+v, %v", done, err)
	}
	all := []*instance{start(t, k, schemas.Toolbroker), start(t, k, schemas.Toolbroker), start(t, k, schemas.Runtime), start(t, k, schemas.Environments)}
	seq := change(k)
	done, err := barrier.Wait(t.Context(), asker, servicekit.Owner(), seq)
	if err != nil || done.Heard != len(all) || len(done.Fenced) != 0 || done.Seq != seq {
		t.Fatalf("%+v, %v", done, err)
	}
	for n, i := range all {
		if i.view.Seq() < seq {
			t.Errorf("instance %d has not heard %d", n, seq)
		}
	}
}

// An instance that does not hear is named, and by then it is not current: it acts on nothing.
func TestWhoDoesNotHearIsFenced(t *testing.T) {
	k := servicekit.Start(t)
	asker := k.Conn(t, string(schemas.Gateway))
	good, bad := start(t, k, schemas.Toolbroker), start(t, k, schemas.Toolbroker)
	gone := start(t, k, schemas.Runtime)
	bad.mu.Lock()
	gone.stop()
	seq := change(k)
	done, err := barrier.Wait(t.Context(), asker, servicekit.Owner(), seq)
	if err != nil || done.Heard != 1 || len(done.Fenced) != 2 || good.view.Seq() < seq {
		t.Errorf("%+v, %v", done, err)
	}
	if err := bad.view.Current(); problem.CodeOf(err) != problem.Unavailable || bad.view.Seq() >= seq {
		t.Errorf("the one that did not hear acts: %v", err)
	}
	for i, service := range []string{"toolbroker/", "runtime/"} {
		if !strings.HasPrefix(done.Fenced[i], service) {
			t.Errorf("fenced: %v", done.Fenced)
		}
	}
	bad.mu.Unlock()
	buskit.Eventually(t, "the one that was late hears", func() bool { return bad.view.Seq() >= seq })
	// Whoever died is forgotten; the others all hear.
	buskit.Eventually(t, "all who are there hear", func() bool {
		done, err := barrier.Wait(t.Context(), asker, servicekit.Owner(), seq)
		return err == nil && done.Heard == 2 && len(done.Fenced) == 0
	})
}

// An instance that was halted finds answers of before, and takes them for no proof of now.
func TestAnswersOfBeforeProveNothing(t *testing.T) {
	k := servicekit.Start(t)
	asker := k.Conn(t, string(schemas.Gateway))
	halted := start(t, k, schemas.Toolbroker)
	halted.mu.Lock()
	change(k)
	// The first is read, and proves that it was all there was; then this one is stored, and said to be in force.
	buskit.Eventually(t, "the instance reads the first", func() bool { return halted.view.Current() != nil })
	done, err := barrier.Wait(t.Context(), asker, servicekit.Owner(), change(k))
	if err != nil || len(done.Fenced) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	halted.mu.Unlock()
	buskit.Eventually(t, "it hears", func() bool { return halted.view.Seq() >= done.Seq })
	halted.applying.Lock()
	defer halted.applying.Unlock()
	if last := halted.current[len(halted.current)-1]; problem.CodeOf(last) != problem.Unavailable {
		t.Errorf("before it had heard what is in force it was current: %v", last)
	}
}

// Somebody who reads another's view, which they believe to be theirs still, takes nothing from it for good.
func TestWhoLosesMessagesStartsAnew(t *testing.T) {
	k := servicekit.Start(t)
	i := start(t, k, schemas.Toolbroker)
	name := ""
	for _, h := range schemas.Hearings() {
		if h.Service == schemas.Toolbroker && h.View {
			name = h.Views()[0]
		}
	}
	thief, err := k.Conn(t, string(schemas.Toolbroker)).JS.Consumer(t.Context(), string(schemas.Control), name)
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	say := func() uint64 {
		said++
		a := id.Agent(fmt.Sprint("agt_", said))
		return k.Say(schemas.Gateway, eventlog.Draft{Key: string(a), Event: agent.Defined{Agent: a, Hosting: agent.External}})
	}
	for taken := false; !taken; {
		batch, err := thief.Fetch(1, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			say()
		}
		for range batch.Messages() {
			taken = true
		}
	}
	last := say()
	buskit.Eventually(t, "the last is heard", func() bool { return i.view.Seq() >= last })
	buskit.Eventually(t, "all are heard", func() bool {
		i.applying.Lock()
		defer i.applying.Unlock()
		return len(i.heard) == said
	})
}

// Without the word on who is there, nobody is told that a change is in force.
func TestNobodyKnowsWhoIsThere(t *testing.T) {
	k := servicekit.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := barrier.Wait(ctx, k.Conn(t, string(schemas.Gateway)), servicekit.Owner(), 1); problem.CodeOf(err) != problem.Pending {
		t.Errorf("%v", err)
	}
	start(t, k, schemas.Toolbroker)
	if _, err := barrier.Wait(t.Context(), k.Conn(t, string(schemas.Webhooks)), servicekit.Owner(), 1); problem.CodeOf(err) != problem.Pending {
		t.Errorf("a service that may not ask: %v", err)
	}
}

// There is place for so many instances and no more, and a place comes free again.
func TestPlaces(t *testing.T) {
	k := servicekit.Start(t)
	var all []*instance
	for range schemas.MaxViews {
		all = append(all, start(t, k, schemas.Toolbroker))
	}
	late := k.Deps(schemas.Toolbroker)
	view := late.View(func(eventlog.Stored) {})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = view.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if view.Current() == nil {
		t.Error("one more than there is place for is current")
	}
	all[3].stop()
	buskit.Eventually(t, "the place comes free", func() bool { return view.Current() == nil })
}
