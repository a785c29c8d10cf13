package upstream

import (
	"context"
	"io"
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
)

// Lent is one request of git's smart HTTP (gitprotocol-http), in the one repository that a call was admitted for.
type Lent struct {
	Owner, Name string
	Writes      bool   // git-receive-pack, else git-upload-pack
	Refs        bool   // what is there, without a body
	Protocol    string // of header Git-Protocol
	Body        io.Reader
}

// Service is git's name of what is asked.
func (l Lent) Service() string {
	if l.Writes {
		return "git-receive-pack"
	}
	return "git-upload-pack"
}

// Lender is a provider that lends its credential to machines' git tools, a request at a time.
type Lender interface {
	// Lend makes a request with the connection's credential. What comes back is of the kind that was asked for, to be
	// closed by the caller; all else is an error.
	Lend(ctx context.Context, l Lent) (*http.Response, error)
}

// Lend implements Lender for a provider that does. A request takes a place until it is answered; how many are carried at
// once is bounded by who carries them.
func (g *Guard) Lend(ctx context.Context, l Lent) (*http.Response, error) {
	lender, ok := g.provider.(Lender)
	if !ok {
		return nil, problem.New(problem.Invalid, "connection %s lends nothing to machines", g.name)
	}
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return through(g, ctx, func(ctx context.Context) (*http.Response, error) { return lender.Lend(ctx, l) })
}
