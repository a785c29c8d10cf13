package gitrelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func line(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

var (
	none = strings.Repeat("0", 40)
	one  = strings.Repeat("1", 40)
	long = strings.Repeat("2", 64)
)

// What a push may say goes on as it is, however it comes in.
func TestPush(t *testing.T) {
	p := Push{Ref: "refs/heads/b", Commit: one}
	for name, body := range map[string]string{
		"a new branch": line(none+" "+one+" refs/heads/b\x00 report-status") + "0000PACK and more",
		"an update":    line(long[:40]+" "+one+" refs/heads/b\n\x00agent=git/2") + "0000PACK",
		"shallow":      line("shallow "+one) + line(none+" "+one+" refs/heads/b\x00") + "0000",
		"a probe":      "0000",
	} {
		out, err := p.Check(iotest.OneByteReader(strings.NewReader(body)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(out); err != nil || string(got) != body {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := (Push{Ref: "refs/heads/b"}).Check(strings.NewReader(line(strings.Repeat("0", 64)+" "+long+" refs/heads/b\x00") + "0000")); err != nil {
		t.Errorf("SHA-256: %v", err)
	}
	lost := errors.New("lost")
	if _, err := p.Check(iotest.ErrReader(lost)); !errors.Is(err, lost) {
		t.Errorf("a body that is lost: %v", err)
	}
}

// FuzzPush: whatever is let through is as it came, and begins with one command for the call's ref, which is not deleted.
func FuzzPush(f *testing.F) {
	for _, s := range []string{line(none+" "+one+" refs/heads/b\x00 x") + "0000PACK", line(one+" "+none+" refs/heads/b") + "0000", "0000", "0004", "ffff", line("shallow " + one), "000g", strings.Repeat(line("shallow "+one), 400)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := Push{Ref: "refs/heads/b"}.Check(bytes.NewReader(body))
		if err != nil {
			switch problem.CodeOf(err) {
			case problem.Denied, problem.Invalid, problem.TooLarge:
			default:
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		got, err := io.ReadAll(out)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%q became %q, %v", body, got, err)
		}
		if string(body) != "0000" && !bytes.Contains(body[:min(len(body), maxCommands)], []byte(" refs/heads/b")) {
			t.Fatalf("%q was let through", body)
		}
	})
}

// Who writes waits for who reads; what is too much, or was given up, ends both.
func TestPipe(t *testing.T) {
	p := NewPipe(100, 10)
	wrote := make(chan error, 1)
	go func() {
		err := p.Put(t.Context(), []byte(strings.Repeat("a", 95)))
		p.End(nil)
		wrote <- err
	}()
	got, err := io.ReadAll(p.Reader(t.Context()))
	if err != nil || len(got) != 95 || <-wrote != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p.Emptied(t.Context())
	if p.Fault() != nil {
		t.Errorf("fault %v", p.Fault())
	}

	p = NewPipe(100, 1000)
	if err := p.Put(t.Context(), make([]byte, 101)); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("too much: %v", err)
	}
	if _, _, err := p.Take(t.Context(), 10); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("too much, read: %v", err)
	}

	p = NewPipe(100, 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	full := make(chan error, 1)
	go func() { full <- p.Put(ctx, make([]byte, 20)) }()
	why := errors.New("revoked")
	cancel(why)
	if err := <-full; !errors.Is(err, why) {
		t.Errorf("given up: %v", err)
	}
	p.End(why)
	if _, err := io.ReadAll(p.Reader(t.Context())); !errors.Is(err, why) {
		t.Errorf("read after the end: %v", err)
	}
	if err := p.Put(t.Context(), []byte("a")); !errors.Is(err, why) {
		t.Errorf("written after the end: %v", err)
	}
}
