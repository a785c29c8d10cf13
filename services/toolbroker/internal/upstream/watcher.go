package upstream

import (
	"context"

	"github.com/execwarden/execwarden/libs/problem"
)

// Watcher is a provider that tells when what it has changes.
type Watcher interface {
	// Watch has the provider tell of a resource, until Unwatch. It returns when the provider has agreed. Asked again, it says
	// whether that still holds.
	Watch(ctx context.Context, uri string) error
	// Unwatch waits for nobody.
	Unwatch(uri string)
}

// Watch implements Watcher for a provider that does. It takes no place among calls: who watches waits beside them.
func (g *Guard) Watch(ctx context.Context, uri string) error {
	w, ok := g.provider.(Watcher)
	if !ok {
		return problem.New(problem.Invalid, "connection %s is no MCP server", g.name)
	}
	return w.Watch(ctx, uri)
}

// Unwatch implements Watcher for a provider that does.
func (g *Guard) Unwatch(uri string) {
	if w, ok := g.provider.(Watcher); ok {
		w.Unwatch(uri)
	}
}
