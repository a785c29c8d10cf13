package duplex_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/duplex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair joins two ends by queues that lose what lose says.
func pair(ctx context.Context, lose func() bool) (a, b *duplex.End, join func()) {
	ab, ba := make(chan []byte, 4096), make(chan []byte, 4096)
	to := func(c chan []byte) func([]byte) error {
		return func(f []byte) error {
			if lose() {
				return errors.New("lost")
			}
			select {
			case c <- f:
			default:
			}
			return nil
		}
	}
	a, b = duplex.New(to(ab), 0, 7), duplex.New(to(ba), 7, 0)
	pass := func(c chan []byte, e *duplex.End) {
		for {
			select {
			case f := <-c:
				e.Take(f)
			case <-ctx.Done():
				return
			}
		}
	}
	return a, b, func() {
		go pass(ab, b)
		go pass(ba, a)
		go a.Run(ctx)
		go b.Run(ctx)
	}
}

func read(t *testing.T, ctx context.Context, e *duplex.End) (all []byte, lost int64) {
	t.Helper()
	for {
		p, err := e.Next(ctx)
		if err == io.EOF {
			return all, lost
		}
		if err != nil {
			t.Error(err)
			return all, lost
		}
		all, lost = append(all, p.Data...), lost+p.Lost
		e.Took(p.End)
	}
}

// Whatever is lost in between, both directions arrive whole and in order.
func TestLossyLink(t *testing.T) {
	for _, rate := range []int{0, 5, 30} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var n atomic.Int64
			a, b, join := pair(ctx, func() bool { return rate > 0 && (n.Add(1)*2654435761>>7)%100 < int64(rate) })
			join()
			want := make([]byte, 2<<20)
			for i := range want {
				want[i] = byte(i * 7 >> 3)
			}
			go func() {
				if a.Write(ctx, duplex.Piece{Stream: 1, Data: want}) != nil || a.Write(ctx, duplex.Piece{Stream: duplex.Gap, Lost: 10 << 30}) != nil {
					t.Error("not written")
				}
				a.Finish([]byte("bye"))
			}()
			go func() {
				_ = b.Write(ctx, duplex.Piece{Stream: 1, Data: []byte("hello")})
				b.Finish(nil)
			}()
			got, lost := read(t, ctx, b)
			back, _ := read(t, ctx, a)
			if !bytes.Equal(got, want) || lost != 10<<30 || string(back) != "hello" || string(b.Last()) != "bye" {
				t.Errorf("%d of %d bytes, %d lost, back %q, last %q", len(got), len(want), lost, back, b.Last())
			}
			if err := a.Drain(ctx); err != nil {
				t.Error(err)
			}
			if err := b.Drain(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// A reader that takes nothing stops its writer at the window, and nothing more is kept.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b, join := pair(ctx, func() bool { return false })
		join()
		wrote := make(chan error, 1)
		var done atomic.Int64
		go func() {
			for range 100 {
				if err := a.Write(ctx, duplex.Piece{Stream: 1, Data: make([]byte, duplex.MaxPiece)}); err != nil {
					wrote <- err
					return
				}
				done.Add(duplex.MaxPiece)
			}
			wrote <- nil
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := done.Load(); n > duplex.Window {
			t.Errorf("%d bytes were written that nobody took", n)
		}
		for got := 0; got < 100*duplex.MaxPiece; {
			p, err := b.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got += len(p.Data)
			b.Took(p.End)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
	})
}

// A cut loses nothing once another link is there.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var cut atomic.Bool
		a, b, join := pair(ctx, cut.Load)
		join()
		cut.Store(true)
		_ = a.Write(ctx, duplex.Piece{Stream: 1, Data: []byte("typed while away")})
		a.Finish(nil)
		time.Sleep(time.Hour)
		cut.Store(false)
		a.Bind(func(f []byte) error { b.Take(f); return nil })
		if got, _ := read(t, ctx, b); string(got) != "typed while away" {
			t.Errorf("got %q", got)
		}
		cancel()
		synctest.Wait()
	})
}

// Nothing that the other end may say makes an end panic, or keep more than its window.
func FuzzTake(f *testing.F) {
	f.Add([]byte("d\x01\x00\x00\x00\x00\x00\x00\x00\x00hello"))
	f.Add([]byte("d\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("a\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("f\x00\x00\x00\x00\x00\x00\x00\x00bye"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		e := duplex.New(func([]byte) error { return nil }, 0, 0)
		for range 20 {
			e.Take(frame)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		total := 0
		for {
			p, err := e.Next(ctx)
			if err != nil {
				break
			}
			if p.Lost < 0 {
				t.Fatalf("a gap of %d", p.Lost)
			}
			total += len(p.Data)
		}
		if total > duplex.Window+duplex.MaxPiece {
			t.Fatalf("%d bytes are kept", total)
		}
	})
}
