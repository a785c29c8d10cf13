package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// maxTenantKeys is how many keys a tenant has at most, over all its renewals.
const maxTenantKeys = 256

// held is a tenant's entry of keys, opened. Its plaintext is identities on lines of their own, the newest first: that
// one seals, all open.
type held struct {
	tenant   id.Tenant
	text     string
	keys     []age.Identity
	current  bool // the current master key sealed it
	revision uint64
}

// hold opens a tenant's keys; nil when it has none.
func (v *Vault) hold(ctx context.Context, tenant id.Tenant) (*held, error) {
	entry, err := v.kv.Get(ctx, v.key(tenant, "key"))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the tenant's key cannot be read now")
	}
	text, current, err := v.master.Unwrap(ctx, entry.Value())
	if err != nil {
		return nil, err
	}
	h := &held{tenant: tenant, text: string(text), current: current, revision: entry.Revision()}
	for line := range strings.Lines(h.text) {
		key, err := age.ParseX25519Identity(strings.TrimSpace(line))
		if err != nil {
			return nil, problem.New(problem.Internal, "the keys of %s are damaged", tenant) // the cause could show one
		}
		h.keys = append(h.keys, key)
	}
	if len(h.keys) == 0 {
		return nil, problem.New(problem.Internal, "the keys of %s are damaged", tenant)
	}
	return h, nil
}

// rewrap seals a tenant's keys under the current master key, if they are as they were read. Problems: conflict.
func (v *Vault) rewrap(ctx context.Context, h *held) error {
	wrapped, err := v.master.Wrap(ctx, []byte(h.text))
	if err != nil {
		return err
	}
	return v.replace(ctx, v.key(h.tenant, "key"), wrapped, h.revision)
}

// replace changes an entry that is as it was read. Problems: conflict, unavailable.
func (v *Vault) replace(ctx context.Context, key string, value []byte, revision uint64) error {
	_, err := v.kv.Update(ctx, key, value, revision)
	switch {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return problem.Wrap(err, problem.Conflict, "somebody changed the same entry at the same moment")
	case err != nil:
		return problem.Wrap(err, problem.Unavailable, "the entry could not be kept")
	}
	return nil
}

// Rewrap seals anew what is not sealed under the newest keys: tenants' keys under the current master key, and the named
// secrets under their tenant's newest key. With look it only counts them, as remaining. What could not be done counts
// as remaining too, with the first reason. It may be done again at any time, and by several at once.
func (v *Vault) Rewrap(ctx context.Context, tenants []id.Tenant, names func(id.Tenant) []string, look bool) (ask.Rewrapped, error) {
	var out ask.Rewrapped
	var err error
	// Asked at the start: a KMS tells only now that it has a newer version. A key file that cannot be read ends it here.
	if out.Key, err = v.master.Current(ctx); err != nil {
		return out, err
	}
	for _, tenant := range tenants {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		h, err := v.hold(ctx, tenant)
		if h == nil && err == nil {
			continue // it has no secrets here
		}
		out.Tenants++
		if err == nil && !h.current {
			if err = problem.New(problem.Pending, "not rewrapped"); !look {
				err = v.rewrapAgain(ctx, h)
			}
			if err == nil {
				out.Keys++
			}
		}
		if err != nil {
			remains(&out, tenant, "keys", err)
			continue
		}
		for _, name := range names(tenant) {
			done, err := v.reseal(ctx, h, name, look)
			if err != nil {
				remains(&out, tenant, name, err)
			} else if done {
				out.Resealed++
			}
		}
	}
	return out, nil
}

func remains(out *ask.Rewrapped, tenant id.Tenant, what string, err error) {
	out.Remaining++
	if out.Reason == "" && problem.CodeOf(err) != problem.Pending {
		out.Reason = fmt.Sprintf("%s, %s: %s", tenant, what, problem.DetailOf(err).Message)
	}
}

// rewrapAgain rewraps, also when another instance does so at the same moment: one of them wins, and that is as good.
func (v *Vault) rewrapAgain(ctx context.Context, h *held) error {
	err := v.rewrap(ctx, h)
	for range 3 {
		if problem.CodeOf(err) != problem.Conflict {
			return err
		}
		again, readErr := v.hold(ctx, h.tenant)
		if readErr != nil || again == nil {
			return errors.Join(readErr, err)
		}
		if *h = *again; h.current {
			return nil
		}
		err = v.rewrap(ctx, h)
	}
	return err
}

// reseal seals a secret under its tenant's newest key, unless it is. One that is replaced meanwhile is left alone: the
// new one is sealed under the newest key by whoever put it, or found by the next rewrap.
func (v *Vault) reseal(ctx context.Context, h *held, name string, look bool) (done bool, err error) {
	at := v.key(h.tenant, "s-"+name)
	entry, err := v.kv.Get(ctx, at)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem.Wrap(err, problem.Unavailable, "the secret cannot be read now")
	}
	if _, err := open(entry.Value(), h.keys[0]); !errors.Is(err, errOther) {
		return false, err
	}
	text, err := open(entry.Value(), h.keys...)
	if err != nil {
		return false, err
	}
	if look {
		return false, problem.New(problem.Pending, "not resealed")
	}
	sealed, err := sealFor(h.keys, text)
	if err != nil {
		return false, err
	}
	if err = v.replace(ctx, at, sealed, entry.Revision()); problem.CodeOf(err) == problem.Conflict {
		return false, nil
	}
	return err == nil, err
}

// Renew gives a tenant a new key and seals the named secrets under it. The keys before it stay, to open what is not
// named here. Problems: conflict (somebody renewed at the same moment), not_found (it has no secrets).
func (v *Vault) Renew(ctx context.Context, tenant id.Tenant, names []string) (ask.Rewrapped, error) {
	h, err := v.hold(ctx, tenant)
	switch {
	case err != nil:
		return ask.Rewrapped{}, err
	case h == nil:
		return ask.Rewrapped{}, problem.New(problem.NotFound, "%s keeps no secrets of %s", v.service, tenant)
	case len(h.keys) >= maxTenantKeys:
		return ask.Rewrapped{}, problem.New(problem.Invalid, "%s has had %d keys, which is the most", tenant, maxTenantKeys)
	}
	fresh, err := age.GenerateX25519Identity()
	if err != nil {
		return ask.Rewrapped{}, fmt.Errorf("tenant key: %w", err)
	}
	h.text = fresh.String() + "\n" + h.text
	if err := v.rewrap(ctx, h); err != nil {
		return ask.Rewrapped{}, err
	}
	// A crash here, or in the middle of what follows, leaves secrets under the key before, which still opens them. The
	// next rewrap goes on.
	return v.Rewrap(ctx, []id.Tenant{tenant}, func(id.Tenant) []string { return names }, false)
}

// sealFor seals under the newest of a tenant's keys.
func sealFor(keys []age.Identity, text string) ([]byte, error) {
	return seal(keys[0].(*age.X25519Identity).Recipient(), text)
}

func seal(to age.Recipient, text string) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "sealing failed")
	}
	return out.Bytes(), nil
}
