// Package vault keeps credentials sealed. Each tenant has a key pair per purpose (age X25519); a credential is
// encrypted to it, and its private half to the master key: a keyring of a file or the environment, or a
// key in a KMS. So a purpose's key opens nothing of another, and rotating the master key rewrites a few small entries.
//
// The bucket's subjects start with the service, and NATS lets each service at its own prefix only.
package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// MaxSecret is the largest credential, in bytes.
const MaxSecret = 64 << 10

// Vault is one service's part of the secrets.
type Vault struct {
	master  Master
	service string
	kv      jetstream.KeyValue
}

// Open opens the part of the service that conn belongs to.
func Open(ctx context.Context, conn *bus.Conn, master Master) (*Vault, error) {
	if master == nil {
		return nil, problem.New(problem.Invalid, "%s keeps secrets and has no master key: set master_key_file, EXECWARDEN_MASTER_KEY or transit_url", conn.User())
	}
	kv, err := conn.JS.KeyValue(ctx, bus.SecretsBucket)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the secrets bucket is not there; is the bus provisioned?")
	}
	return &Vault{master: master, service: conn.User(), kv: kv}, nil
}

// Put seals a secret under name, in place of any that was there, and gives its fingerprint.
func (v *Vault) Put(ctx context.Context, tenant id.Tenant, name string, s Secret) (fingerprint string, err error) {
	if s.Empty() || len(s.Reveal()) > MaxSecret {
		return "", problem.New(problem.Invalid, "a secret has 1 to %d bytes", MaxSecret)
	}
	keys, err := v.tenantKeys(ctx, tenant)
	if err != nil {
		return "", err
	}
	sealed, err := sealFor(keys, s.Reveal())
	if err != nil {
		return "", err
	}
	if _, err := v.kv.Put(ctx, v.key(tenant, "s-"+name), sealed); err != nil {
		return "", problem.Wrap(err, problem.Unavailable, "the secret could not be kept")
	}
	return Fingerprint(s), nil
}

// Get opens the secret under name. Problems: not_found, unavailable, internal (sealed under another master key).
func (v *Vault) Get(ctx context.Context, tenant id.Tenant, name string) (Secret, error) {
	entry, err := v.kv.Get(ctx, v.key(tenant, "s-"+name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Secret{}, problem.New(problem.NotFound, "there is no secret %s", name)
	}
	if err != nil {
		return Secret{}, problem.Wrap(err, problem.Unavailable, "the secret cannot be read now")
	}
	keys, err := v.tenantKeys(ctx, tenant)
	if err != nil {
		return Secret{}, err
	}
	text, err := open(entry.Value(), keys...)
	return NewSecret(text), err
}

// Delete forgets the secret under name, so that nothing of it can be opened any more. One that is not there is no error.
func (v *Vault) Delete(ctx context.Context, tenant id.Tenant, name string) error {
	if err := v.kv.Delete(ctx, v.key(tenant, "s-"+name)); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the secret could not be forgotten now")
	}
	return nil
}

// tenantKeys opens the tenant's keys of this purpose, the newest first, or makes the first. Those that an earlier
// master key sealed are sealed anew on the way.
func (v *Vault) tenantKeys(ctx context.Context, tenant id.Tenant) ([]age.Identity, error) {
	for range 2 {
		held, err := v.hold(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if held != nil {
			if !held.current {
				// Whatever became of this, the keys are open, and the next opening or a rewrap tries again. The entry
				// is the same keys under one master key or the other: a crash here leaves one of the two.
				_ = v.rewrap(ctx, held)
			}
			return held.keys, nil
		}
		fresh, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, fmt.Errorf("tenant key: %w", err)
		}
		sealed, err := v.master.Wrap(ctx, []byte(fresh.String()))
		if err != nil {
			return nil, err
		}
		// Create, not Put: of two instances that make the first key, one wins and the other reads it.
		if _, err := v.kv.Create(ctx, v.key(tenant, "key"), sealed); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, problem.Wrap(err, problem.Unavailable, "the tenant's key could not be kept")
		}
	}
	return nil, problem.New(problem.Unavailable, "the tenant's key was made and is not there")
}

func (v *Vault) key(tenant id.Tenant, name string) string {
	return v.service + "." + string(tenant) + "." + name
}

// Fingerprint tells secrets apart and opens nothing: 12 hex digits of the SHA-256.
func Fingerprint(s Secret) string {
	sum := sha256.Sum256([]byte(s.Reveal()))
	return hex.EncodeToString(sum[:6])
}

func open(sealed []byte, with ...age.Identity) (string, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), with...)
	var other *age.NoIdentityMatchError
	if errors.As(err, &other) {
		return "", unknownKey()
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, MaxSecret+1))
	}
	if err != nil {
		return "", problem.Wrap(err, problem.Internal, "a sealed secret is damaged")
	}
	return string(text), nil
}
