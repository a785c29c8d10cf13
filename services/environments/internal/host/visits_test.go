package host_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
)

// preview is a visit to a port of the box.
func (b *box) preview() connector.Visit {
	return connector.Visit{Admitted: visit.Admitted{Visit: id.New[id.Visit](), Way: visit.Preview, Attachment: b.lease.Attachment, Port: 3000}}
}

func unheard([]byte) error { return nil }

// stall puts itself between the connector and the cage, passes everything on, and keeps what connects to a port waiting until it
// is let go. waits hears of each that does.
func (b *box) stall() (waits <-chan struct{}, let func()) {
	b.t.Helper()
	at := filepath.Join(b.home, "attachments", string(b.lease.Attachment), "sock")
	if err := os.Rename(at, at+".real"); err != nil {
		b.t.Fatal(err)
	}
	l, err := net.Listen("unix", at)
	if err != nil {
		b.t.Fatal(err)
	}
	waiting, held := make(chan struct{}, 64), make(chan struct{})
	let = sync.OnceFunc(func() { close(held) })
	var working sync.WaitGroup
	working.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() {
				defer in.Close()
				out, err := net.Dial("unix", at+".real")
				if err != nil {
					return
				}
				defer out.Close()
				first := bufio.NewReader(in)
				if head, _ := first.Peek(len("POST /ports/")); string(head) == "POST /ports/" {
					waiting <- struct{}{}
					<-held
				}
				working.Go(func() { _, _ = io.Copy(in, out); in.Close() })
				_, _ = io.Copy(out, first)
			})
		}
	})
	b.t.Cleanup(func() {
		let()
		b.Close() // it lets go of its connections
		l.Close()
		working.Wait()
		_ = os.Rename(at+".real", at) // so that the shim is found and ended
	})
	return waiting, let
}

// A port at which nobody answers holds up its own connection, and no other person on the machine, nor what is told of visits.
func TestVisitWaitsForNoOther(t *testing.T) {
	b := newBox(t, "preview: [3000]\n")
	waits, let := b.stall()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	slow, other := b.preview(), b.preview()
	if err := b.OpenVisit(ctx, slow, connector.OpenVisit{}, true, unheard); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for range 2 { // asked for again meanwhile, it is the same connection
		go func() { ended <- b.OpenVisit(ctx, slow, connector.OpenVisit{Stream: 1}, true, unheard) }()
	}
	<-waits
	done := make(chan error, 1)
	go func() {
		defer close(done)
		b.TakeVisit(slow.Visit, 0, nil)
		b.TakeVisit(slow.Visit, 1, nil)
		b.EndedVisits()
		b.ToldVisit("vst_none")
		done <- b.OpenVisit(ctx, other, connector.OpenVisit{}, true, unheard)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("another visit: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("another visit waits for it")
	}
	select {
	case err := <-ended:
		t.Errorf("it is answered before the port is: %v", err)
	default:
	}
	let()
	for range 2 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "3000") {
			t.Errorf("a port at which nobody listens: %v", err)
		}
	}
}

// The machine knows all visits, whichever gateway they come by, and takes no more than it can.
func TestVisitsOfAMachineAreBounded(t *testing.T) {
	b := newBox(t, "preview: [3000]\n")
	var begun []connector.Visit
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range 40 {
		wait.Go(func() {
			v := b.preview()
			err := b.OpenVisit(t.Context(), v, connector.OpenVisit{}, true, unheard)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				begun = append(begun, v)
			} else if problem.CodeOf(err) != problem.Busy {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if len(begun) != 32 {
		t.Fatalf("%d people are on the machine", len(begun))
	}
	if err := b.OpenVisit(t.Context(), begun[0], connector.OpenVisit{}, false, unheard); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := b.OpenVisit(t.Context(), begun[0], connector.OpenVisit{Stream: 1 << 21}, true, unheard); problem.CodeOf(err) != problem.Invalid {
		t.Error(err)
	}
}
