package gitrelay

import (
	"context"
	"io"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
)

// Pipe holds what is on its way in one direction, up to a bound: who writes waits for who reads. It counts, and ends with
// an error what is larger than it may be.
type Pipe struct {
	most, bound int64

	mu      sync.Mutex
	held    []byte
	total   int64
	closed  bool
	ended   bool          // whoever reads was told that there is no more
	err     error         // why it ended, when that is no end of the data
	changed chan struct{} // closed and replaced
}

// NewPipe makes a pipe for at most most bytes in all, of which bound are held at once.
func NewPipe(most, bound int64) *Pipe {
	return &Pipe{most: most, bound: bound, changed: make(chan struct{})}
}

func (p *Pipe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Put takes data once there is room. Problems: too_large, and whatever the pipe was ended with.
func (p *Pipe) Put(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		p.mu.Lock()
		if p.err == nil && p.total+int64(len(data)) > p.most {
			p.err = problem.New(problem.TooLarge, "it is over %d bytes, which is the most that goes through the broker (git_max_bytes)", p.most)
			p.tell()
		}
		if p.err != nil || p.closed {
			err := p.err
			p.mu.Unlock()
			if err == nil {
				err = problem.New(problem.Conflict, "nobody reads any more")
			}
			return err
		}
		if room := p.bound - int64(len(p.held)); room > 0 {
			n := min(room, int64(len(data)))
			p.held = append(p.held, data[:n]...)
			p.total += n
			data = data[n:]
			p.tell()
		}
		changed := p.changed
		p.mu.Unlock()
		if len(data) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// End ends the data; with an error, what is held is not worth reading.
func (p *Pipe) End(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.closed {
		p.err = err
	}
	if p.err != nil {
		p.held = nil
	}
	p.closed = true
	p.tell()
}

// Take gives up to n bytes, waiting for some until ctx ends; last says that there are no more.
func (p *Pipe) Take(ctx context.Context, n int) (data []byte, last bool, err error) {
	for {
		p.mu.Lock()
		switch {
		case p.err != nil:
			err := p.err
			p.mu.Unlock()
			return nil, false, err
		case len(p.held) > 0 || p.closed:
			n := min(n, len(p.held))
			data = append([]byte(nil), p.held[:n]...)
			p.held = append(p.held[:0], p.held[n:]...)
			last = p.closed && len(p.held) == 0
			p.ended = p.ended || last
			p.tell()
			p.mu.Unlock()
			return data, last, nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false, nil
		}
	}
}

// Reader reads the pipe until ctx ends.
func (p *Pipe) Reader(ctx context.Context) io.Reader { return reader{p, ctx} }

type reader struct {
	pipe *Pipe
	ctx  context.Context // of the request that reads
}

func (r reader) Read(b []byte) (int, error) {
	data, last, err := r.pipe.Take(r.ctx, len(b))
	switch {
	case err != nil:
		return 0, err
	case len(data) > 0:
		return copy(b, data), nil
	case last:
		return 0, io.EOF
	}
	return 0, context.Cause(r.ctx)
}

// Fault is what the pipe was ended with.
func (p *Pipe) Fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Emptied waits until all was read, or ctx ends.
func (p *Pipe) Emptied(ctx context.Context) {
	for {
		p.mu.Lock()
		done := p.err != nil || p.ended
		changed := p.changed
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
