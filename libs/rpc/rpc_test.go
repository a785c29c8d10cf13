package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var caller = rpc.Caller{Tenant: "tnt_a", Actor: "mem_x", Role: "owner"}

// answering runs run_start as the agent loop, which webhooks and gateway may ask.
func answering(t *testing.T, b *buskit.Bus, decide func(context.Context, rpc.Caller, ask.StartRun) (ask.Started, error)) *rpc.Server {
	t.Helper()
	conn := b.Conn(t, "agentloop")
	srv, err := rpc.NewServer(conn, schemas.Agentloop, "1.2.3", b.Log)
	if err == nil {
		err = rpc.Handle(srv, "run_start", decide)
	}
	if err == nil {
		err = conn.NC.Flush() // so that the server knows who answers
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return srv
}

func start(ctx context.Context, c *bus.Conn, who rpc.Caller, q any) (ask.Started, error) {
	return rpc.Ask[ask.Started](ctx, c, schemas.Agentloop, "run_start", who, q)
}

func TestAsker(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	seen := make(chan rpc.Caller, 10)
	answering(t, b, func(_ context.Context, who rpc.Caller, q ask.StartRun) (ask.Started, error) {
		seen <- who
		return ask.Started{Run: q.Run, Seq: 7}, nil
	})
	for _, s := range []schemas.Service{schemas.Webhooks, schemas.Gateway} {
		got, err := start(t.Context(), b.Conn(t, string(s)), caller, ask.StartRun{Run: "run_1"})
		if err != nil || got.Run != "run_1" || got.Seq != 7 {
			t.Fatalf("%+v, %v", got, err)
		}
		if who := <-seen; who.Service != s || who.Tenant != "tnt_a" || who.Actor != "mem_x" || who.Role != "owner" {
			t.Errorf("%s is taken for %+v", s, who)
		}
	}
	// A service that may not ask is told so, and soon: NATS says it in an error of its own, not in an answer.
	began := time.Now()
	if _, err := start(t.Context(), b.Conn(t, "runtime"), caller, ask.StartRun{}); problem.CodeOf(err) != problem.BusDenied || time.Since(began) > 5*time.Second {
		t.Errorf("runtime asks: %v after %s", err, time.Since(began))
	}
	// Whom the question says it is from does not matter; where it was put does.
	forged := `{"tenant":"tnt_a","actor":"mem_x","Service":"gateway","body":{"run":"run_1","agent":"agt_a","prompt":"x"}}`
	reply, err := b.Conn(t, "webhooks").NC.RequestWithContext(t.Context(), bus.RPCSubject("agentloop", "run_start", "webhooks"), []byte(forged))
	if err != nil || !strings.Contains(string(reply.Data), "invalid") {
		t.Errorf("a forged asker is answered %v, %v", reply, err)
	}
	if len(seen) != 0 {
		t.Errorf("%+v was heard", <-seen)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	var heard atomic.Int64
	answering(t, b, func(context.Context, rpc.Caller, ask.StartRun) (ask.Started, error) {
		heard.Add(1)
		return ask.Started{}, nil
	})
	c := b.Conn(t, "gateway")
	const good = `{"tenant":"tnt_a","actor":"mem_x","role":"owner","body":{"run":"run_1","agent":"agt_a","prompt":"x"}}`
	for name, raw := range map[string]string{
		"nothing":                  "",
		"no JSON":                  "\x00",
		"an array":                 "[]",
		"null":                     "null",
		"no body":                  `{"tenant":"tnt_a"}`,
		"an unknown attribute":     strings.Replace(good, `"role"`, `"rôle"`, 1),
		"an unknown field":         strings.Replace(good, `"prompt"`, `"promt"`, 1),
		"a number for text":        strings.Replace(good, `"x"`, "1", 1),
		"more after it":            good + "{}",
		"more after the body":      good[:len(good)-1] + `,"body":{}}x`,
		"no tenant":                strings.Replace(good, "tnt_a", "", 1),
		"everybody's tenant":       strings.Replace(good, "tnt_a", "*", 1),
		"a tenant and a subject":   strings.Replace(good, "tnt_a", "tnt_a.run.>", 1),
		"a tenant that is a run":   strings.Replace(good, "tnt_a", "run_1", 1),
		"a tenant with its prefix": strings.Replace(good, "tnt_a", "tnt_", 1),
	} {
		reply, err := c.NC.Request(bus.RPCSubject("agentloop", "run_start", "gateway"), []byte(raw), 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var a struct{ Problem *problem.Detail }
		if err := json.Unmarshal(reply.Data, &a); err != nil || a.Problem == nil || a.Problem.Code != problem.Invalid {
			t.Errorf("%s is answered %s", name, reply.Data)
		}
	}
	large := ask.StartRun{Prompt: strings.Repeat("x", rpc.MaxRequest)}
	if _, err := start(t.Context(), c, caller, large); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("a question over the limit: %v", err)
	}
	if heard.Load() != 0 {
		t.Errorf("%d were heard", heard.Load())
	}
}

// Whoever could make a push consumer could have JetStream deliver stored messages, which others wrote, as questions.
// Such a message's reply is an acknowledgement.
func TestPushedMessagesAreNoQuestions(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	heard := make(chan rpc.Caller, 4)
	answering(t, b, func(_ context.Context, who rpc.Caller, _ ask.StartRun) (ask.Started, error) {
		heard <- who
		return ask.Started{}, nil
	})
	const good = `{"tenant":"tnt_a","actor":"mem_x","role":"owner","body":{"run":"run_1","agent":"agt_a","prompt":"x"}}`
	subject := bus.RPCSubject("agentloop", "run_start", "gateway")
	for _, reply := range []string{"$JS.API.STREAM.PURGE.EW_ACTIVITY", ""} {
		if err := b.Boot.NC.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(good)}); err != nil {
			t.Fatal(err)
		}
	}
	// Asked after all of them on the same subject, and answered: what came before it was passed over.
	if _, err := start(t.Context(), b.Conn(t, "gateway"), caller, ask.StartRun{}); err != nil {
		t.Fatal(err)
	}
	if n := len(heard); n != 1 {
		t.Errorf("%d questions were heard, want the one", n)
	}
}

func TestBusyWhenFull(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	release := make(chan struct{})
	var running atomic.Int64
	answering(t, b, func(ctx context.Context, _ rpc.Caller, _ ask.StartRun) (ask.Started, error) {
		running.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ask.Started{Seq: 1}, nil
	})
	c := b.Conn(t, "gateway")
	var wait sync.WaitGroup
	var answered atomic.Int64
	for range 256 {
		wait.Go(func() {
			if _, err := start(t.Context(), c, caller, ask.StartRun{}); err == nil {
				answered.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	buskit.Eventually(t, "256 are being answered", func() bool { return running.Load() == 256 })
	if _, err := start(t.Context(), c, caller, ask.StartRun{}); problem.CodeOf(err) != problem.Busy {
		t.Errorf("one more: %v", err)
	}
	close(release)
	wait.Wait()
	if answered.Load() != 256 {
		t.Errorf("%d were answered", answered.Load())
	}
	if _, err := start(t.Context(), c, caller, ask.StartRun{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// One question that hits a fault of ours ends neither the process nor the next question.
func TestPanic(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	answering(t, b, func(_ context.Context, _ rpc.Caller, q ask.StartRun) (ask.Started, error) {
		if q.Prompt == "panic" {
			panic("canary")
		}
		return ask.Started{Seq: 1}, nil
	})
	c := b.Conn(t, "gateway")
	for range 3 {
		if _, err := start(t.Context(), c, caller, ask.StartRun{Prompt: "panic"}); problem.CodeOf(err) != problem.Internal || strings.Contains(err.Error(), "canary") {
			t.Errorf("a panic is answered %v", err)
		}
	}
	if _, err := start(t.Context(), c, caller, ask.StartRun{}); err != nil {
		t.Errorf("the next question: %v", err)
	}
}

func TestProblemsCross(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	answers := map[string]error{
		"conflict": problem.New(problem.Conflict, "it moved on"),
		"plain":    errors.New("password hunter2"),
		"wrapped":  problem.Wrap(errors.New("password hunter2"), problem.Unavailable, "not now"),
	}
	answering(t, b, func(_ context.Context, _ rpc.Caller, q ask.StartRun) (ask.Started, error) {
		return ask.Started{}, answers[q.Prompt]
	})
	c := b.Conn(t, "gateway")
	for name, want := range map[string]problem.Code{"conflict": problem.Conflict, "plain": problem.Internal, "wrapped": problem.Unavailable} {
		if _, err := start(t.Context(), c, caller, ask.StartRun{Prompt: name}); problem.CodeOf(err) != want || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	c := b.Conn(t, "gateway")
	if _, err := start(t.Context(), c, caller, ask.StartRun{}); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("nobody runs: %v", err)
	}
	srv := answering(t, b, func(ctx context.Context, _ rpc.Caller, _ ask.StartRun) (ask.Started, error) {
		<-ctx.Done()
		return ask.Started{}, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := start(ctx, c, caller, ask.StartRun{}); problem.CodeOf(err) != problem.Timeout {
		t.Errorf("no answer in time: %v", err)
	}
	srv.Close() // waits for those being answered, and ends them
	b.Server.Halt()
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	switch _, err := start(ctx, c, caller, ask.StartRun{}); problem.CodeOf(err) {
	case problem.Unavailable, problem.Timeout:
	default:
		t.Errorf("without a bus: %v", err)
	}
	if err := b.Server.Resume(); err != nil {
		t.Fatal(err)
	}
}

func TestLargeAnswer(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	srv, err := rpc.NewServer(b.Conn(t, "ledger"), schemas.Ledger, "1.2.3", b.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	err = rpc.Handle(srv, "events", func(context.Context, rpc.Caller, ask.Events) (ask.EventPage, error) {
		return ask.EventPage{Events: []ask.Event{{Raw: make([]byte, 1<<20)}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rpc.Ask[ask.EventPage](t.Context(), b.Conn(t, "gateway"), schemas.Ledger, "events", caller, ask.Events{})
	if problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("%v", err)
	}
	if err := rpc.Handle(srv, "no_such_method", func(context.Context, rpc.Caller, ask.Done) (ask.Done, error) { return ask.Done{}, nil }); err == nil {
		t.Error("a method outside the catalogue is answered")
	}
}
