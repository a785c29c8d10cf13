package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
)

// A deployment of before records had lives of their own keeps its people, and takes such records from its next start on.
func TestPeopleOfAnEarlierDeploymentStay(t *testing.T) {
	b := buskit.Start(t)
	if err := b.Boot.JS.DeleteKeyValue(t.Context(), bus.PeopleBucket); err != nil {
		t.Fatal(err)
	}
	old, err := b.Boot.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.PeopleBucket, History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Put(t.Context(), "token.a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Create(t.Context(), "token.b", []byte("x"), jetstream.KeyTTL(time.Minute)); err == nil {
		t.Fatal("it has lives already")
	}
	if err := bus.Provision(t.Context(), b.Boot, bus.Layout{MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	people, err := b.Boot.JS.KeyValue(t.Context(), bus.PeopleBucket)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := people.Get(t.Context(), "token.a"); err != nil || string(e.Value()) != "x" {
		t.Errorf("%v", err)
	}
	if _, err := people.Create(t.Context(), "token.b", []byte("x"), jetstream.KeyTTL(time.Minute)); err != nil {
		t.Error(err)
	}
}
