package egress

import (
	"context"
	"errors"
	"io"

	"github.com/execwarden/execwarden/libs/problem"
)

// errTimeout is the cause of a context that a rule's Timeout ended.
var errTimeout = errors.New("egress timeout")

// body counts what is read, after decompression, and ends the request's context when it is closed.
type body struct {
	from io.ReadCloser
	left int64 // -1 for no limit
	most int64
	ctx  context.Context
	done func()
}

func (b *body) Read(p []byte) (int, error) {
	if b.most >= 0 {
		if b.left < 0 {
			return 0, b.tooLarge()
		}
		// One byte more than is left tells a body that is too large from one that ends just there.
		p = p[:min(int64(len(p)), b.left+1)]
	}
	n, err := b.from.Read(p)
	if b.most >= 0 {
		if b.left -= int64(n); b.left < 0 {
			return n - 1, b.tooLarge()
		}
	}
	if err != nil && err != io.EOF {
		err = failure(b.ctx, err, "the response ended early")
	}
	return n, err
}

func (b *body) tooLarge() error {
	return problem.New(problem.TooLarge, "the response is larger than %d bytes", b.most)
}

func (b *body) Close() error {
	b.done()
	return b.from.Close()
}

// failure gives a transport's error its code. What is a problem already stays.
func failure(ctx context.Context, err error, what string) error {
	var p *problem.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(context.Cause(ctx), errTimeout):
		return problem.Wrap(err, problem.Timeout, "the server did not answer in time")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return problem.Wrap(err, problem.Unavailable, "%s", what)
}
