package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// Init writes the secrets of a deployment into a directory. What is there already is kept: it is run again after an
// upgrade that brought a new service.
func Init(dir, database string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return problem.Wrap(err, problem.Invalid, "directory %s cannot be made", dir)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	if _, err := vault.LoadMaster(file("master.key")); err != nil {
		return err
	}
	root, err := keyfile.Load(file("root.key"))
	if err != nil {
		return err
	}
	if _, err := keyfile.Load(file("ledger.key")); err != nil {
		return err
	}
	public := base64.StdEncoding.EncodeToString(root.Public().(ed25519.PublicKey))
	if _, err := ensure(file("root.pub"), public); err != nil {
		return err
	}
	if _, err := ensure(file("owner.token"), "ewt_"+random()); err != nil {
		return err
	}
	password, err := ensure(file("postgres.password"), random())
	if err != nil {
		return err
	}
	at := url.URL{Scheme: "postgres", User: url.UserPassword("execwarden", password), Host: database, Path: "/execwarden"}
	if _, err := ensure(file("postgres.url"), at.String()); err != nil {
		return err
	}
	var env strings.Builder
	for _, u := range bus.Users() {
		password, err := ensure(file("bus-"+u.Name), random())
		if err != nil {
			return err
		}
		fmt.Fprintf(&env, "BUS_PASSWORD_%s=%s\n", strings.ToUpper(u.Name), password)
	}
	issuer, err := pair(file("callout.seed"), nkeys.CreateAccount)
	if err != nil {
		return err
	}
	nobody, err := pair(file("nobody.seed"), nkeys.CreateUser)
	if err != nil {
		return err
	}
	fmt.Fprintf(&env, "BUS_CALLOUT_ISSUER=%s\nBUS_NOBODY=%s\n", issuer, nobody)
	if err := keyfile.Write(file("nats.env"), strings.TrimSpace(env.String())); err != nil {
		return err
	}
	fmt.Fprintf(out, "The deployment's secrets are in %s. Keep root.key offline once the broker's key is published; back master.key up: without it no credential opens.\n", dir)
	return nil
}

// pair makes a pair of NKeys, or keeps the one that is there, and gives its public half.
func pair(path string, create func() (nkeys.KeyPair, error)) (string, error) {
	fresh, err := create()
	if err != nil {
		return "", err
	}
	seed, err := fresh.Seed()
	if err != nil {
		return "", err
	}
	text, err := ensure(path, string(seed))
	if err != nil {
		return "", err
	}
	kept, err := nkeys.FromSeed([]byte(text))
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "%s is no seed", path)
	}
	return kept.PublicKey()
}

// ensure reads a secret, or keeps text as one.
func ensure(path, text string) (string, error) {
	there, err := keyfile.Read(path)
	if !errors.Is(err, os.ErrNotExist) {
		return there, err
	}
	return text, keyfile.Write(path, text)
}

func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
