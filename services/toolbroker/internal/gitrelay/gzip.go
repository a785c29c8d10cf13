package gitrelay

import (
	"compress/gzip"
	"errors"
	"io"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxAsked bounds what git asks of a fetch, in bytes: what it wants and has. It is far below what a repository is.
const maxAsked = 16 << 20

// Unzipped reads a body that git compressed, as it does with what it wants and has of a large repository.
func Unzipped(body io.Reader) (io.Reader, error) {
	z, err := gzip.NewReader(body)
	if err != nil {
		return nil, garbled(err)
	}
	return &bounded{z, maxAsked}, nil
}

type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, problem.New(problem.TooLarge, "what git asks is over %d bytes", int64(maxAsked))
	}
	if err != nil && err != io.EOF {
		err = garbled(err)
	}
	return n, err
}

// garbled is the machine's fault, and tells so: a body that ends early would else look like a git server that does.
func garbled(err error) error {
	var p *problem.Error
	if errors.As(err, &p) {
		return p
	}
	return problem.New(problem.Invalid, "the body is not compressed as it says: %v", err)
}
