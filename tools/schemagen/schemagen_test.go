package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas"
)

// The generated configuration is one that NATS takes, with users that can do their work.
func TestNATSConfServes(t *testing.T) {
	for _, u := range bus.Users() {
		t.Setenv("BUS_PASSWORD_"+strings.ToUpper(u.Name), "password-of-"+u.Name)
	}
	issuer, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]nkeys.KeyPair{"BUS_CALLOUT_ISSUER": issuer, "BUS_NOBODY": nobody} {
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, public)
	}
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, natsConf(), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	if !opts.SyncAlways {
		t.Error("the generated server does not fsync before it acknowledges")
	}
	opts.Websocket.Host, opts.Websocket.Port = "127.0.0.1", server.RANDOM_PORT
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	for _, u := range bus.Users() {
		conn, err := bus.Connect(t.Context(), bus.Config{URL: srv.ClientURL(), User: u.Name, Password: "password-of-" + u.Name, Instance: "0"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%s: %v", u.Name, err)
		}
		t.Cleanup(conn.Close)
		if u.Name == bus.BootUser {
			if err := bus.Provision(t.Context(), conn, bus.Layout{MaxBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Every golden is what its schema says, by a validator that is not ours.
func TestGoldensFollowTheirSchemas(t *testing.T) {
	files := map[string][]byte{}
	if err := jsonSchemas(files); err != nil {
		t.Fatal(err)
	}
	for _, e := range schemas.All() {
		name := schemas.TypeOf(e)
		golden, err := os.ReadFile(filepath.Join("..", "..", "schemas", "testdata", name+".json"))
		if err != nil {
			t.Errorf("%s has no golden: %v", name, err)
			continue
		}
		c := jsonschema.NewCompiler()
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(files[schemaDir+"/"+name+".json"])))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(name, doc); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Compile(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var envelope struct {
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(golden, &envelope); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := jsonschema.UnmarshalJSON(strings.NewReader(string(envelope.Data)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
