// Package servicekit gives tests of one service what it runs with: its own user on a real bus, and keys. Whoever else
// it talks to is played by the test, connected as that service's user.
package servicekit

import (
	"context"
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Tenant is the tenant that tests work in.
const Tenant = id.Tenant("tnt_a")

// Kit is a bus with the keys of one deployment.
type Kit struct {
	*buskit.Bus
	Root     ed25519.PrivateKey
	RootFile string // Root, as a service is given it
	Master   vault.Master

	t    testing.TB
	mu   sync.Mutex
	logs map[schemas.Service]*eventlog.Log
}

// Start runs a bus until the test ends.
func Start(t testing.TB) *Kit {
	t.Helper()
	k := &Kit{Bus: buskit.Start(t), RootFile: filepath.Join(t.TempDir(), "root.key"), t: t, logs: map[schemas.Service]*eventlog.Log{}}
	var err error
	if k.Root, err = keyfile.Load(k.RootFile); err != nil {
		t.Fatal(err)
	}
	k.Master = NewMaster(t)
	return k
}

// NewMaster makes a master key.
func NewMaster(t testing.TB) vault.Master {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	master, err := vault.ParseMaster(identity.String())
	if err != nil {
		t.Fatal(err)
	}
	return master
}

// Deps is what a service is made with, on a connection of its own.
func (k *Kit) Deps(s schemas.Service) boot.Deps {
	k.t.Helper()
	conn := k.Conn(k.t, string(s))
	return boot.Deps{
		Service: s, Version: "0.0.0", Conn: conn, Log: eventlog.New(conn), Logger: k.Bus.Log.With("service", string(s)),
		Metrics: prometheus.NewRegistry(), Health: boot.NewHealth(), Master: k.Master, Root: k.Root.Public().(ed25519.PublicKey),
	}
}

// Run runs a service until the test ends or stop is called, which waits until it has ended.
func (k *Kit) Run(s boot.Service) (stop func()) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) { // stopped while it started
			k.t.Errorf("service: %v", err)
		}
	})
	k.t.Cleanup(stop)
	return stop
}

// As is the log of a service that the test plays.
func (k *Kit) As(s schemas.Service) *eventlog.Log {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logs[s] == nil {
		k.logs[s] = eventlog.New(k.Conn(k.t, string(s)))
	}
	return k.logs[s]
}

// Say appends an event as a service that the test plays, after whatever the aggregate has, and gives its sequence.
func (k *Kit) Say(s schemas.Service, d eventlog.Draft) uint64 {
	k.t.Helper()
	if d.Tenant == "" {
		d.Tenant = Tenant
	}
	if d.Actor == "" {
		d.Actor = "service:" + string(s)
	}
	log, entry := k.As(s), schemas.EntryOf(d.Event)
	var seq uint64
	var err error
	if entry.Ordered {
		var last uint64
		for e, err := range log.Read(k.t.Context(), entry.Stream, entry.Filter(schemas.SubjectOf(d.Tenant, entry.Kind, d.Key, d.Route)), 1) {
			if err != nil {
				k.t.Fatal(err)
			}
			last = e.Seq
		}
		seq, err = log.AppendAfter(k.t.Context(), d, last)
	} else {
		seq, err = log.Append(k.t.Context(), d)
	}
	if err != nil {
		k.t.Fatalf("%s says %s: %v", s, entry.Kind, err)
	}
	return seq
}

// Events gives every event of the kinds, or of all kinds, in a stream so far.
func (k *Kit) Events(stream schemas.Stream, kinds ...string) (out []eventlog.Stored) {
	k.t.Helper()
	for e, err := range k.As(schemas.Approvals).Read(k.t.Context(), stream, "ew.v1.>", 1) {
		if err != nil {
			k.t.Fatal(err)
		}
		if len(kinds) == 0 {
			out = append(out, e)
		}
		for _, kind := range kinds {
			if e.At.Kind() == kind {
				out = append(out, e)
			}
		}
	}
	return out
}

// Await waits for the n-th event of a type that has is true of, counted from 1, and gives it.
func Await[T schemas.Event](k *Kit, n int, has func(T) bool) (T, eventlog.Stored) {
	k.t.Helper()
	var zero, found T
	var at eventlog.Stored
	buskit.Eventually(k.t, zero.Kind(), func() bool {
		left := n
		for _, e := range k.Events(schemas.EntryOf(zero).Stream, zero.Kind()) {
			ev, err := eventlog.Decode[T](e)
			if err != nil || has != nil && !has(ev) {
				continue
			}
			if left--; left == 0 {
				found, at = ev, e
				return true
			}
		}
		return false
	})
	return found, at
}

// Answer plays a service that answers one RPC.
func Answer[Q, A any](k *Kit, s schemas.Service, method string, decide func(context.Context, rpc.Caller, Q) (A, error)) (stop func()) {
	k.t.Helper()
	conn := k.Conn(k.t, string(s))
	srv, err := rpc.NewServer(conn, s, "0.0.0", k.Bus.Log)
	if err == nil {
		err = rpc.Handle(srv, method, decide)
	}
	if err == nil {
		err = conn.NC.Flush() // so that the server knows who answers
	}
	if err != nil {
		k.t.Fatal(err)
	}
	stop = sync.OnceFunc(srv.Close)
	k.t.Cleanup(stop)
	return stop
}

// Owner is a member who may do everything.
func Owner() rpc.Caller { return Caller("mem_owner", member.Owner) }

// Caller is somebody in the tests' tenant.
func Caller(actor string, role member.Role) rpc.Caller {
	return rpc.Caller{Tenant: Tenant, Actor: actor, Role: string(role)}
}
