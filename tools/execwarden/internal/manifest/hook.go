package manifest

import (
	"context"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// minHookSecret is the shortest secret of a webhook endpoint, in bytes.
const minHookSecret = 16

type hookFields struct {
	Header `yaml:",inline"`
	Secret *secretRef `yaml:"secret"`
}

func buildHook(d *document) (r Resource) {
	f, ok := fields[hookFields](d)
	if !ok {
		return r
	}
	hook := named[id.Hook](d)
	r.Secret = d.secret("$.secret", f.Secret)
	switch {
	case f.Secret == nil && d.node("$.secret") == nil:
		d.fault("$", "a hook needs a secret: without one, anybody could be the provider")
	case r.Secret != nil && len(r.Secret.Reveal()) < minHookSecret:
		d.fault("$.secret", "the secret of a hook has at least %d bytes", minHookSecret)
	}
	r.put = func(ctx context.Context, api *client.Client, secret string) error {
		return api.PutHook(ctx, hook, secret)
	}
	return r
}
