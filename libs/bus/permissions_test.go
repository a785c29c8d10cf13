package bus_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
)

// publishDenied publishes and says whether the server refused the subject.
func publishDenied(t *testing.T, c *bus.Conn, subject string, data []byte) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ctx, forget := c.Guard(ctx, subject)
	defer forget()
	if err := c.NC.Publish(subject, data); err != nil {
		t.Fatal(err)
	}
	if err := c.NC.FlushWithContext(ctx); err != nil && context.Cause(ctx) == nil {
		t.Fatal(err)
	}
	// The server answers in order: after the flush's PONG a denial has arrived, and the error handler runs at once.
	select {
	case <-ctx.Done():
		return problem.CodeOf(context.Cause(ctx)) == problem.BusDenied
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// Every service may say exactly what the catalogue lets it say, under exactly its routes.
func TestServicesSayOnlyTheirKinds(t *testing.T) {
	b := buskit.Start(t)
	for _, s := range schemas.Services() {
		t.Run(string(s), func(t *testing.T) {
			c := b.Conn(t, string(s))
			var denials []string
			for _, e := range schemas.All() {
				routes := append([]call.Route{""}, e.Routes...)
				for _, r := range routes {
					if len(e.Routes) > 0 && r == "" {
						continue
					}
					if slices.Contains(e.MaySay(s), r) {
						continue
					}
					denials = append(denials, schemas.SubjectOf("tnt_a", e.Kind, "k_1", r).String())
				}
			}
			denied := deniedOf(t, c, denials)
			for _, subject := range denials {
				if !denied[subject] {
					t.Errorf("%s may say %s", s, subject)
				}
			}
		})
	}
}

// deniedOf publishes to all subjects and returns those that the server refused.
func deniedOf(t *testing.T, c *bus.Conn, subjects []string) map[string]bool {
	t.Helper()
	denied := map[string]bool{}
	done := make(chan string, len(subjects))
	for _, subject := range subjects {
		ctx, forget := c.Guard(t.Context(), subject)
		defer forget()
		stop := context.AfterFunc(ctx, func() {
			if problem.CodeOf(context.Cause(ctx)) == problem.BusDenied {
				done <- subject
			}
		})
		defer stop()
		if err := c.NC.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.NC.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "all denials", func() bool {
		for len(done) > 0 {
			denied[<-done] = true
		}
		return len(denied) == len(subjects)
	})
	return denied
}

func TestOnlyBootMakesStreamsAndDurables(t *testing.T) {
	b := buskit.Start(t)
	for _, s := range schemas.Services() {
		c := b.Conn(t, string(s))
		var subjects []string
		for _, stream := range []string{"EW_CONTROL", "EW_ACTIVITY", "EW_PROOFS", "KV_claims", "KV_secrets", bus.BlobStream} {
			for _, verb := range []string{"CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "MSG.DELETE", "SNAPSHOT"} {
				subjects = append(subjects, "$JS.API.STREAM."+verb+"."+stream)
			}
			subjects = append(subjects,
				// The push-consumer hole: whoever may create a consumer delivers into somebody's RPC subject.
				"$JS.API.CONSUMER.CREATE."+stream+".evil.ew.v1.>", "$JS.API.CONSUMER.CREATE."+stream+".evil",
				"$JS.API.CONSUMER.CREATE."+stream, "$JS.API.CONSUMER.DURABLE.CREATE."+stream+".evil",
				"$JS.API.CONSUMER.DELETE."+stream+".agentloop_run")
		}
		for _, h := range schemas.Hearings() {
			if h.Service != s {
				subjects = append(subjects, "$JS.API.CONSUMER.MSG.NEXT."+string(h.Stream)+"."+h.Name,
					"$JS.ACK."+string(h.Stream)+"."+h.Name+".1.1.1.1.1")
			}
		}
		for _, other := range schemas.Services() {
			if other != s {
				subjects = append(subjects, bus.InboxPrefix(string(other))+".x", bus.RPCSubject("agentloop", "run_start", string(other)),
					"$KV.secrets."+string(other)+".tnt_a.s-x", "$JS.API.DIRECT.GET.KV_secrets.$KV.secrets."+string(other)+".tnt_a.s-x")
			}
		}
		denied := deniedOf(t, c, subjects)
		for _, subject := range subjects {
			if !denied[subject] {
				t.Errorf("%s may publish %s", s, subject)
			}
		}
	}
}

// A service may not listen where others are answered, hinted or asked.
func TestServicesHearOnlyTheirOwn(t *testing.T) {
	b := buskit.Start(t)
	c := b.Conn(t, "webhooks")
	for _, subject := range []string{"_INBOX.>", "_INBOX.toolbroker.>", "ew.v1.>", "ew.rpc.v1.agentloop.run_start.*", "ew.hint.v1.runtime.>", "$KV.>", ">"} {
		ctx, forget := c.Guard(t.Context(), subject)
		sub, err := c.NC.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.NC.Flush(); err != nil {
			t.Fatal(err)
		}
		buskit.Eventually(t, "denial of "+subject, func() bool { return ctx.Err() != nil })
		if problem.CodeOf(context.Cause(ctx)) != problem.BusDenied {
			t.Errorf("webhooks may hear %s", subject)
		}
		_ = sub.Unsubscribe()
		forget()
	}
}

// An append on a subject that the user may not say is told apart from a time-out.
func TestDenialIsNotATimeout(t *testing.T) {
	b := buskit.Start(t)
	c := b.Conn(t, "webhooks")
	if !publishDenied(t, c, "ew.v1.tnt_a.call.run_1.admitted.upstream", []byte("{}")) {
		t.Fatal("webhooks may admit calls")
	}
}

// The boot user is the one who could empty a stream that denies purges; this pins why nobody else may update one.
func TestStreamUpdateHoleIsReal(t *testing.T) {
	b := buskit.Start(t)
	ctx := t.Context()
	for range 3 {
		if _, err := b.Boot.JS.Publish(ctx, "ew.v1.tnt_a.run.run_1.created", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	body, err := json.Marshal(map[string]any{"name": "EW_ACTIVITY"})
	if err != nil {
		t.Fatal(err)
	}
	loop := b.Conn(t, "agentloop")
	if !publishDenied(t, loop, "$JS.API.STREAM.UPDATE.EW_ACTIVITY", body) {
		t.Error("agentloop may update a stream")
	}
	s, err := b.Boot.JS.Stream(ctx, "EW_ACTIVITY")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(ctx); err == nil {
		t.Error("the stream can be purged")
	}
	if n := s.CachedInfo().State.Msgs; n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	if got := s.CachedInfo().Config; !got.DenyDelete || !got.DenyPurge || got.Discard != jetstream.DiscardNew {
		t.Errorf("stream config %+v", got)
	}
}

func TestUsersAreExact(t *testing.T) {
	for _, u := range bus.Users() {
		if u.Name == bus.BootUser {
			continue
		}
		for _, p := range u.Publish {
			if p == ">" || strings.HasPrefix(p, "$JS.API.>") || strings.HasPrefix(p, "$JS.API.STREAM.>") || strings.HasPrefix(p, "$JS.API.CONSUMER.CREATE") {
				t.Errorf("%s may publish %s", u.Name, p)
			}
		}
	}
}
