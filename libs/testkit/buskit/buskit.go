// Package buskit gives tests a real bus: an embedded NATS server with its users and permissions on, provisioned as
// in production.
package buskit

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/natsd"
)

// Bus is a provisioned bus for one test.
type Bus struct {
	Server *natsd.Server
	Boot   *bus.Conn
	Log    *slog.Logger
}

// Start runs a bus until the test ends. Its files are fsynced at intervals: tests kill processes, not the power.
func Start(t testing.TB) *Bus {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := natsd.Start(natsd.Config{StoreDir: t.TempDir(), SyncInterval: time.Minute}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Halt)
	b := &Bus{Server: server, Log: log}
	b.Boot = b.Conn(t, bus.BootUser)
	if err := bus.Provision(t.Context(), b.Boot, bus.Layout{MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := bus.ServeViews(ctx, b.Boot, log); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	return b
}

// Conn connects as one of the bus's users until the test ends.
func (b *Bus) Conn(t testing.TB, user string) *bus.Conn {
	t.Helper()
	c, err := bus.Connect(t.Context(), b.Server.Client(user, "test"), b.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Eventually waits until done says true. It fails the test after 20 s, far beyond what anything takes.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}
