package duplex

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// Bounds of one direction.
const (
	Window   = 256 << 10 // bytes that are sent and not taken
	MaxPiece = 32 << 10  // bytes of one message's data
	MaxFrame = MaxPiece + 16

	again     = 2 * time.Second // until what was not received is sent again
	keepAlive = 5 * time.Second
)

// Gap is the stream of pieces that stand for bytes that are lost; other numbers are the user's.
const Gap byte = 0

// Piece is a part of one direction.
type Piece struct {
	Stream byte
	Data   []byte
	Lost   int64 // of a Gap: bytes that it stands for
	End    int64 // the offset behind it; set by Next
}

func (p Piece) size() int64 { return int64(len(p.Data)) + p.Lost }

type sent struct {
	frame []byte
	end   int64 // the offset behind it
	lost  int64
}

// End is one end of a stream.
type End struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything below changes
	send    func([]byte) error

	// What goes out.
	written  int64  // offset of what is written next
	received int64  // by the other end
	taken    int64  // by the other end's reader
	kept     []sent // what its reader has not taken
	lost     int64  // of that, which takes no room
	finished bool
	ended    bool // the end was received
	moved    time.Time

	// What comes in.
	next  int64 // offset that is expected
	mine  int64 // offset that this reader took
	queue []Piece
	last  []byte
	over  bool
	heard time.Time
}

// New makes an end that begins to write and to read at these offsets, and passes messages on by send, which may lose them
// and must not wait.
func New(send func([]byte) error, writeFrom, readFrom int64) *End {
	now := time.Now()
	return &End{send: send, changed: make(chan struct{}), written: writeFrom, received: writeFrom, taken: writeFrom, next: readFrom, mine: readFrom, moved: now, heard: now}
}

// Bind has what is between the ends replaced, after a cut. What the other end's reader has not taken is sent again: it may be
// another end by now, which begins where that one's reader was.
func (e *End) Bind(send func([]byte) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.send, e.heard, e.received = send, time.Now(), min(e.received, e.taken)
	e.resend()
	e.tell()
}

// Heard is when the other end was last heard.
func (e *End) Heard() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard
}

// At is up to where this end has received, and its reader has taken.
func (e *End) At() (received, taken int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.next, e.mine
}

// Written is the offset of what is written next.
func (e *End) Written() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// Run sends again what was lost, and says that this end is there, until ctx ends.
func (e *End) Run(ctx context.Context) {
	tick := time.NewTicker(again / 4)
	defer tick.Stop()
	told := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		now := time.Now()
		if e.received < e.written && now.Sub(e.moved) > again {
			e.moved = now
			e.resend()
		}
		if now.Sub(told) > keepAlive {
			told = now
			e.tell()
		}
		e.mu.Unlock()
	}
}

// Write sends a piece, in messages of at most MaxPiece. It waits while the window is full. An error is ctx's.
func (e *End) Write(ctx context.Context, p Piece) error {
	for {
		part := p
		if len(part.Data) > MaxPiece {
			part.Data = part.Data[:MaxPiece]
		}
		e.mu.Lock()
		for e.written-e.taken > e.lost && e.written+int64(len(part.Data))-e.taken-e.lost > Window && !e.ended {
			if err := e.wait(ctx); err != nil {
				return err // wait has let go of the lock
			}
		}
		e.put(part)
		e.mu.Unlock()
		if p.Data = p.Data[len(part.Data):]; len(p.Data) == 0 {
			return ctx.Err()
		}
	}
}

func (e *End) put(p Piece) {
	frame := make([]byte, 10, 10+max(len(p.Data), 8))
	frame[0], frame[1] = 'd', p.Stream
	binary.BigEndian.PutUint64(frame[2:], uint64(e.written))
	if p.Stream == Gap {
		frame = binary.BigEndian.AppendUint64(frame, uint64(p.Lost))
	} else {
		frame = append(frame, p.Data...)
	}
	e.lost += p.Lost
	e.out(frame, p.size(), p.Lost)
}

func (e *End) out(frame []byte, size, lost int64) {
	if e.received == e.written {
		e.moved = time.Now()
	}
	e.written += size
	e.kept = append(e.kept, sent{frame, e.written, lost})
	_ = e.send(frame) // else it is sent again
}

// Finish ends this direction, with a last word of at most MaxPiece bytes. Nothing is written after it.
func (e *End) Finish(word []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return
	}
	e.finished = true
	frame := append([]byte{'f'}, binary.BigEndian.AppendUint64(nil, uint64(e.written))...)
	e.out(append(frame, word[:min(len(word), MaxPiece)]...), 1, 0)
	e.signal()
}

// Drain waits until the other end has received this direction's end.
func (e *End) Drain(ctx context.Context) error {
	e.mu.Lock()
	for !e.ended {
		if err := e.wait(ctx); err != nil {
			return err
		}
	}
	e.mu.Unlock()
	return nil
}

// Next gives the next piece, and takes the one before as done with. At the end it is io.EOF; Last then has the last word.
func (e *End) Next(ctx context.Context) (Piece, error) {
	e.mu.Lock()
	for len(e.queue) == 0 && !e.over {
		if err := e.wait(ctx); err != nil {
			return Piece{}, err
		}
	}
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		return Piece{}, io.EOF
	}
	p := e.queue[0]
	e.queue = e.queue[1:]
	return p, nil
}

// Took says that everything up to an offset is done with, so that as much may be sent again.
func (e *End) Took(offset int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if offset > e.mine {
		e.mine = offset
		e.tell()
	}
}

// Last is the last word of the other end, once Next gave io.EOF.
func (e *End) Last() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// Take takes a message of the other end. What makes no sense is thrown away.
func (e *End) Take(frame []byte) {
	if len(frame) < 9 || len(frame) > MaxFrame {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = time.Now()
	switch frame[0] {
	case 'd':
		if len(frame) > 10 {
			e.takePiece(frame[1], int64(binary.BigEndian.Uint64(frame[2:])), frame[10:])
		}
	case 'f':
		if at := int64(binary.BigEndian.Uint64(frame[1:])); at == e.next && !e.over {
			e.over, e.last = true, append([]byte{}, frame[9:]...)
			e.next++
			e.signal()
		}
		e.tell()
	case 'a':
		if len(frame) == 17 {
			e.acknowledged(int64(binary.BigEndian.Uint64(frame[1:])), int64(binary.BigEndian.Uint64(frame[9:])))
		}
	}
}

// maxQueued is how many pieces may wait for whoever reads: a gap has no bytes, and would wait for nothing.
const maxQueued = 4096

func (e *End) takePiece(stream byte, at int64, data []byte) {
	p := Piece{Stream: stream}
	if stream == Gap {
		if len(data) != 8 {
			return
		}
		p.Lost = int64(binary.BigEndian.Uint64(data))
	} else {
		p.Data = append([]byte{}, data...)
	}
	held := int64(0)
	for _, q := range e.queue {
		held += int64(len(q.Data))
	}
	if at != e.next || p.size() <= 0 || at+p.size() < at || e.over || held+int64(len(p.Data)) > Window+MaxPiece || len(e.queue) >= maxQueued {
		e.tell() // it is there already, or something before it is not
		return
	}
	e.next += p.size()
	p.End = e.next
	e.queue = append(e.queue, p)
	e.tell()
	e.signal()
}

func (e *End) acknowledged(received, taken int64) {
	if received > e.written || taken > received || received < e.received {
		return
	}
	if received > e.received {
		e.received, e.moved = received, time.Now()
	}
	e.taken = max(e.taken, taken)
	for len(e.kept) > 0 && e.kept[0].end <= e.taken {
		e.lost -= e.kept[0].lost
		e.kept = e.kept[1:]
	}
	e.ended = e.finished && received == e.written
	e.signal()
}

func (e *End) resend() {
	for _, s := range e.kept {
		if s.end > e.received && e.send(s.frame) != nil {
			return
		}
	}
}

func (e *End) tell() {
	frame := binary.BigEndian.AppendUint64([]byte{'a'}, uint64(e.next))
	_ = e.send(binary.BigEndian.AppendUint64(frame, uint64(min(e.mine, e.next)))) // else the next one says it
}

func (e *End) signal() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// wait lets go of the lock until something changes. With an error the lock stays let go of.
func (e *End) wait(ctx context.Context) error {
	changed := e.changed
	e.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	return nil
}
