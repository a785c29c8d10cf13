package vault

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// rewrapPage is how many tenants one question about keys is for.
const rewrapPage = 50

// Methods answers what an owner asks about the keys of a service's secrets. The bucket cannot be listed, since whoever
// may list one service's part may list every service's; so the service says what it keeps: tenants gives every tenant
// that it may have a secret of, or a problem while it is not certain to know them all, and secrets the names of one's.
func (v *Vault) Methods(tenants func() ([]id.Tenant, error), secrets func(id.Tenant) []string) []rpc.Method {
	return []rpc.Method{
		rpc.On("keys_rewrap", func(ctx context.Context, who rpc.Caller, q ask.Rewrap) (ask.Rewrapped, error) {
			if member.Role(who.Role) != member.Owner {
				return ask.Rewrapped{}, problem.New(problem.Denied, "a %s may not change keys", who.Role)
			}
			all, err := tenants()
			if err != nil {
				return ask.Rewrapped{}, err
			}
			slices.Sort(all)
			all = slices.Compact(all)
			from, found := slices.BinarySearch(all, q.After)
			if found {
				from++
			}
			page := all[from:min(from+rewrapPage, len(all))]
			out, err := v.Rewrap(ctx, page, secrets, q.Look)
			if err == nil && from+len(page) < len(all) {
				out.Next = page[len(page)-1]
			}
			return out, err
		}),
		rpc.On(schemas.MasterKey, func(ctx context.Context, who rpc.Caller, _ ask.MasterKey) (ask.MasterKeyName, error) {
			if member.Role(who.Role) != member.Owner {
				return ask.MasterKeyName{}, problem.New(problem.Denied, "a %s may not look at keys", who.Role)
			}
			name, err := v.master.Current(ctx)
			return ask.MasterKeyName{Key: name}, err
		}),
		rpc.On("keys_renew", func(ctx context.Context, who rpc.Caller, _ ask.RenewKeys) (ask.Rewrapped, error) {
			if member.Role(who.Role) != member.Owner {
				return ask.Rewrapped{}, problem.New(problem.Denied, "a %s may not change keys", who.Role)
			}
			if _, err := tenants(); err != nil {
				return ask.Rewrapped{}, err // nor are the secrets all known
			}
			return v.Renew(ctx, who.Tenant, secrets(who.Tenant))
		}),
	}
}
