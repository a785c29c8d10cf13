package manifest

import (
	"context"
	"fmt"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// Key names a thing among all that a tenant has.
type Key struct {
	Kind Kind
	Name string
}

func (k Key) String() string { return fmt.Sprintf("%s/%s", k.Kind, k.Name) }

// Where is a place in a file.
type Where struct {
	File string
	Line int
}

func (w Where) String() string { return fmt.Sprintf("%s:%d", w.File, w.Line) }

// Resource is one thing that a document asks for.
type Resource struct {
	Key
	Where  Where
	Want   any           // what it is to be, in the words of its event
	Secret *vault.Secret // nil when the document names none
	refs   []reference

	put func(ctx context.Context, api *client.Client, secret string) error
}

// reference is another thing that has to be there.
type reference struct {
	to    Key
	where Where
}

func (r Resource) send(ctx context.Context, api *client.Client) error {
	secret := ""
	if r.Secret != nil {
		secret = r.Secret.Reveal()
	}
	return r.put(ctx, api, secret)
}
