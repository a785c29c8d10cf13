package natsd_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/natsd"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func start(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	cfg.StoreDir, cfg.SyncInterval = filepath.Join(t.TempDir(), "nats"), time.Minute
	s, err := natsd.Start(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Halt)
	return s
}

func connect(t *testing.T, cfg bus.Config) (*bus.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := bus.Connect(ctx, cfg, quiet)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

// Each user has a password of its own, and nobody comes in without one.
func TestPasswords(t *testing.T) {
	s := start(t, natsd.Config{Listen: "127.0.0.1:0"})
	passwords := map[string]string{}
	for _, u := range bus.Users() {
		cfg := s.Client(u.Name, "0")
		if _, err := connect(t, cfg); err != nil {
			t.Errorf("%s: %v", u.Name, err)
		}
		if other, twice := passwords[cfg.Password]; twice || len(cfg.Password) < 40 {
			t.Errorf("%s has the password of %s", u.Name, other)
		}
		passwords[cfg.Password] = u.Name
	}
	// Whom the server does not know, it asks about.
	registry, err := connect(t, s.Client("environments", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registry.NC.Subscribe(bus.CalloutSubject, func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := registry.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*bus.Config){
		"no password":         func(c *bus.Config) { c.Password = "" },
		"a wrong password":    func(c *bus.Config) { c.Password = strings.Repeat("0", 48) },
		"another's password":  func(c *bus.Config) { c.Password = s.Client("ledger", "0").Password },
		"a user that is none": func(c *bus.Config) { c.User = "root" },
	} {
		cfg := s.Client("toolbroker", "0")
		cfg.InProcess, cfg.URL = nil, s.URL()
		change(&cfg)
		// Told at once, and not tried again: that would look like a bus that is away.
		began := time.Now()
		if _, err := connect(t, cfg); problem.CodeOf(err) != problem.Unauthenticated || time.Since(began) > 3*time.Second {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
	}
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Error("anybody may come in over TCP")
	}
	cfg := s.Client("toolbroker", "0")
	cfg.InProcess, cfg.URL = nil, s.URL()
	if _, err := connect(t, cfg); err != nil {
		t.Errorf("over TCP: %v", err)
	}
}

// Connections find their way back after a halt, to everything that was acknowledged.
func TestHaltAndResume(t *testing.T) {
	s := start(t, natsd.Config{})
	if s.URL() != "" {
		t.Errorf("it listens at %s", s.URL())
	}
	boot, err := connect(t, s.Client(bus.BootUser, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Provision(t.Context(), boot, bus.Layout{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	loop, err := connect(t, s.Client("agentloop", "0"))
	if err != nil {
		t.Fatal(err)
	}
	const subject = "ew.v1.tnt_a.run.run_1.created"
	for n := range 3 {
		if _, err := loop.JS.Publish(t.Context(), subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		s.Halt()
		s.Halt() // a second time changes nothing
		if _, err := s.InProcessConn(); err == nil {
			t.Error("a stopped server takes connections")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := loop.JS.Publish(ctx, subject, []byte("{}")); err == nil {
			t.Error("a stopped server acknowledges")
		}
		cancel()
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		buskit.Eventually(t, "both are back", func() bool { return boot.NC.IsConnected() && loop.NC.IsConnected() })
		stream, err := boot.JS.Stream(t.Context(), "EW_ACTIVITY")
		if err != nil {
			t.Fatal(err)
		}
		// What was told to have failed was not stored behind its caller's back.
		if got := stream.CachedInfo().State.Msgs; got != uint64(n+1) {
			t.Errorf("%d events after %d halts", got, n+1)
		}
	}
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]natsd.Config{
		"no directory": {}, "no port": {StoreDir: t.TempDir(), Listen: "127.0.0.1"}, "a port that is none": {StoreDir: t.TempDir(), Listen: "127.0.0.1:nowhere"},
	} {
		if s, err := natsd.Start(cfg, quiet); err == nil {
			s.Halt()
			t.Errorf("%s: it runs", name)
		}
	}
}
