package vault

import (
	"context"
	"errors"

	"github.com/execwarden/execwarden/libs/problem"
)

// Master seals the keys of tenants, and opens them again. It may be far away: ctx bounds the asking.
type Master interface {
	// Wrap seals a tenant's key under the current master key.
	Wrap(ctx context.Context, key []byte) (wrapped []byte, err error)
	// Unwrap opens one that any master key sealed which is still known. current is false when that was an earlier one.
	// Problems: internal (none of those known sealed it), unavailable.
	Unwrap(ctx context.Context, wrapped []byte) (key []byte, current bool, err error)
	// Current names the master key that seals now. The name tells keys apart and opens nothing.
	Current(ctx context.Context) (name string, err error)
}

// errOther is the cause when something is sealed under a key that a master does not have.
var errOther = errors.New("sealed under another key")

// Masters is one master made of several: the first seals, all open. With it a deployment moves from one kind of
// master to another.
type Masters []Master

// Wrap implements Master.
func (m Masters) Wrap(ctx context.Context, key []byte) ([]byte, error) { return m[0].Wrap(ctx, key) }

// Current implements Master.
func (m Masters) Current(ctx context.Context) (string, error) { return m[0].Current(ctx) }

// Unwrap implements Master.
func (m Masters) Unwrap(ctx context.Context, wrapped []byte) ([]byte, bool, error) {
	for i, one := range m {
		key, current, err := one.Unwrap(ctx, wrapped)
		if !errors.Is(err, errOther) {
			return key, current && i == 0, err
		}
	}
	return nil, false, unknownKey()
}

func unknownKey() error {
	return problem.Wrap(errOther, problem.Internal, "a secret is sealed under another key; was the master key replaced?")
}
