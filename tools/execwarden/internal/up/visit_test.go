package up

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// person is somebody on a machine.
type person struct {
	*duplex.End
	t        testing.TB
	admitted ask.AdmittedVisit
	joined   chan error
	cut      context.CancelFunc // their network
	away     func()             // cuts it and waits for that
}

func unlinked([]byte) error { return errors.New("not there yet") }

// comes has a visit admitted and joins its stream.
func (w *world) comes(v client.Visit) *person {
	w.t.Helper()
	admitted, err := w.AdmitVisit(w.t.Context(), "box", v)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &person{End: duplex.New(unlinked, 0, 0), t: w.t, admitted: admitted}
	w.joins(p, 0)
	return p
}

func (w *world) joins(p *person, stream int) {
	w.t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	p.joined, p.cut = make(chan error, 1), cut
	opened := make(chan struct{})
	go func() {
		p.joined <- w.VisitStream(ctx, "box", p.admitted, connector.OpenVisit{Stream: stream, Rows: 30, Cols: 100}, p.End, func() { close(opened) }, func(error) {})
	}()
	joined := p.joined
	p.away = func() { cut(); joined <- <-joined }
	w.t.Cleanup(p.away)
	select {
	case <-opened:
	case err := <-p.joined:
		p.joined <- err
		w.t.Fatal(err)
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if err := p.Write(p.t.Context(), duplex.Piece{Stream: connector.VisitInput, Data: []byte(text)}); err != nil {
		p.t.Fatal(err)
	}
}

// sees reads until all of it has a text.
func (p *person) sees(want string) (all string) {
	p.t.Helper()
	for !strings.Contains(all, want) {
		piece, err := p.Next(p.t.Context())
		if err != nil {
			p.t.Fatalf("%v after %q", err, all)
		}
		all += string(piece.Data)
		p.Took(piece.End)
	}
	return all
}

// rest reads to the end.
func (p *person) rest() (out, errs []byte, e machine.Exec) {
	p.t.Helper()
	for {
		piece, err := p.Next(p.t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if piece.Stream == connector.VisitStderr {
			errs = append(errs, piece.Data...)
		} else {
			out = append(out, piece.Data...)
		}
		p.Took(piece.End)
	}
	if err := json.Unmarshal(p.Last(), &e); err != nil {
		p.t.Fatal(err)
	}
	return out, errs, e
}

// visits gives the events about visits.
func (w *world) visits(v id.Visit) (admitted []visit.Admitted, ended []visit.Ended, actors []string) {
	w.t.Helper()
	page, err := w.Events(w.t.Context(), client.Filter{}, client.Cursor{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range page.Events {
		envelope, err := e.Envelope()
		if err != nil {
			w.t.Fatal(err)
		}
		ev, err := envelope.Decode()
		if err != nil {
			continue
		}
		switch ev := ev.(type) {
		case visit.Admitted:
			if ev.Visit == v {
				admitted, actors = append(admitted, ev), append(actors, envelope.Actor)
			}
		case visit.Ended:
			if ev.Visit == v {
				ended = append(ended, ev)
			}
		}
	}
	return admitted, ended, actors
}

func (w *world) endOfVisit(v id.Visit) (end visit.Ended) {
	w.t.Helper()
	buskit.Eventually(w.t, "the end of the visit is on record", func() bool {
		admitted, ended, actors := w.visits(v)
		if len(ended) == 1 && len(admitted) == 1 && strings.HasPrefix(actors[0], "mem_") {
			end = ended[0]
		}
		return end.Visit != ""
	})
	return end
}

func newVisited(t *testing.T, policy string) (*world, *outpost) {
	t.Helper()
	w := newWorld(t)
	o := w.newOutpost("box", policy)
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	w.scripted("worker")
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	return w, o
}

// A person's command between pipes: bytes as they are, both streams, the exit code, and a record.
func TestCommandOfAPerson(t *testing.T) {
	w, _ := newVisited(t, "")
	p := w.comes(client.Visit{Way: visit.Shell, Argv: []string{"/bin/sh", "-c", "cat; echo oops >&2; exit 3"}})
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * 31 >> 5)
	}
	go func() {
		_ = p.Write(t.Context(), duplex.Piece{Stream: connector.VisitInput, Data: sent})
		p.Finish(nil)
	}()
	out, errs, e := p.rest()
	if !bytes.Equal(out, sent) || string(errs) != "oops\n" || e.Code == nil || *e.Code != 3 {
		t.Errorf("%d of %d bytes, errors %q, end %+v", len(out), len(sent), errs, e)
	}
	end := w.endOfVisit(p.admitted.Visit)
	if end.Code != 3 || end.Reason != "exited" || end.In != int64(len(sent)) || end.Out != int64(len(sent)+5) || end.SHA256 != e.SHA256 {
		t.Errorf("the record %+v, the end %+v", end, e)
	}
	// What it printed is kept as any command's output is.
	sum, page := sha256.New(), ask.Output{}
	buskit.Eventually(t, "the output is stored", func() bool {
		var err error
		if page, err = w.Output(t.Context(), id.Call(p.admitted.Visit), page.Next, 0); err != nil {
			t.Fatal(err)
		}
		for _, piece := range page.Pieces {
			sum.Write(piece.Data)
		}
		return page.End != nil
	})
	if got := hex.EncodeToString(sum.Sum(nil)); got != end.SHA256 {
		t.Errorf("stored is %s, printed %s", got, end.SHA256)
	}
}

// A shell at a terminal: its size and its changes, a cut and a connector that ends in the middle, and a revocation.
func TestShellOfAPerson(t *testing.T) {
	w, o := newVisited(t, "")
	p := w.comes(client.Visit{Way: visit.Shell, Terminal: true, Term: "xterm", Argv: []string{"/bin/sh"}})
	p.types("stty size; tty; echo $TERM; [ -e /root/x ] || echo ca''ged\n")
	if got := p.sees("caged\r\n"); !strings.Contains(got, "30 100") || !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "xterm") {
		t.Errorf("the terminal says %q", got)
	}
	if err := p.Write(t.Context(), duplex.Piece{Stream: connector.VisitSize, Data: []byte{0, 50, 0, 132}}); err != nil {
		t.Fatal(err)
	}
	p.types("stty size\n")
	p.sees("50 132\r\n")
	// Their network is gone, and the connector with it; what they type meanwhile arrives once.
	p.away()
	o.stop()
	p.types("echo on''ce >>log; cat log\n")
	o.start()
	w.joins(p, 0)
	if got := p.sees("once\r\n"); strings.Contains(got, "once\r\nonce") {
		t.Errorf("typed twice: %q", got)
	}
	p.types("trap '' HUP TERM; while :; do sleep 1; done\n")
	if _, err := w.Release(t.Context(), "box", "main", true, "enough"); err != nil {
		t.Fatal(err)
	}
	if _, _, e := p.rest(); e.Reason != "revoked" || e.Survivors != 0 {
		t.Errorf("ended %+v", e)
	}
	if end := w.endOfVisit(p.admitted.Visit); end.Reason != "revoked" || end.Survivors != 0 {
		t.Errorf("the record %+v", end)
	}
	if _, err := w.AdmitVisit(t.Context(), "box", client.Visit{Way: visit.Shell}); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("without an attachment: %v", err)
	}
}

// Somebody who leaves is hung up, also what does not want to be.
func TestWhoLeavesIsHungUp(t *testing.T) {
	w, o := newVisited(t, "")
	p := w.comes(client.Visit{Way: visit.Shell, Terminal: true, Argv: []string{"/bin/sh", "-c", "trap '' HUP TERM; touch runs; while :; do sleep 1; done"}})
	buskit.Eventually(t, "it runs", func() bool {
		_, err := os.Stat(filepath.Join(o.cfg.Home, "volumes", "main", "runs"))
		return err == nil
	})
	p.Finish([]byte(connector.VisitLeave))
	if end := w.endOfVisit(p.admitted.Visit); end.Reason != "hangup" || end.Survivors != 0 {
		t.Errorf("the record %+v", end)
	}
}

// Who may not is told which side refuses, and a permit is good for its own visit and member alone.
func TestVisitsRefused(t *testing.T) {
	w, _ := newVisited(t, "shell: false\npreview: [\"3000-3999\"]\n")
	open := func(a ask.AdmittedVisit, stream int) error {
		return w.VisitStream(t.Context(), "box", a, connector.OpenVisit{Stream: stream}, duplex.New(unlinked, 0, 0), func() { t.Error("opened") }, func(error) {})
	}
	shell, err := w.AdmitVisit(t.Context(), "box", client.Visit{Way: visit.Shell})
	if err != nil {
		t.Fatal(err)
	}
	if err := open(shell, 0); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "the machine's policy, rule shell") {
		t.Errorf("a shell: %v", err)
	}
	port, err := w.AdmitVisit(t.Context(), "box", client.Visit{Way: visit.Preview, Port: 4000})
	if err != nil {
		t.Fatal(err)
	}
	if err := open(port, 0); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "rule preview") {
		t.Errorf("a port: %v", err)
	}
	changed := port
	changed.Spec = bytes.Replace(port.Spec, []byte("4000"), []byte("3000"), 1)
	if err := open(changed, 0); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "another visit") {
		t.Errorf("another port than was admitted: %v", err)
	}
	other := port
	other.Spec = bytes.Replace(port.Spec, []byte(`"actor":"mem_`), []byte(`"actor":"mem_x`), 1)
	if err := open(other, 0); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("somebody else's: %v", err)
	}
	forged := shell
	forged.Permit = port.Permit
	if err := open(forged, 0); problem.CodeOf(err) != problem.Denied {
		t.Errorf("another visit's permit: %v", err)
	}
	for name, v := range map[string]client.Visit{
		"no way": {}, "a port of a shell": {Way: visit.Shell, Port: 1}, "no port": {Way: visit.Preview}, "port 70000": {Way: visit.Preview, Port: 70000},
		"a terminal's name": {Way: visit.Shell, Term: "x;y"}, "a long command": {Way: visit.Shell, Argv: []string{strings.Repeat("x", 20<<10)}},
	} {
		if _, err := w.AdmitVisit(t.Context(), "box", v); err == nil {
			t.Errorf("%s is admitted", name)
		}
	}
}

// A port of a command is looked at: bytes both ways, the end of each direction, and nothing but that port.
func TestPreview(t *testing.T) {
	w, o := newVisited(t, "")
	server := w.comes(client.Visit{Way: visit.Shell, Argv: []string{"/usr/bin/python3", "-c", `
import socket,threading
l=socket.create_server(("127.0.0.1",3456)); open("listens","w").close()
def serve(c):
    all=b""
    while True:
        b=c.recv(65536)
        if not b: break
        all+=b
    c.sendall(all[::-1]); c.close()
while True: threading.Thread(target=serve,args=(l.accept()[0],),daemon=True).start()
`}})
	buskit.Eventually(t, "it listens", func() bool {
		_, err := os.Stat(filepath.Join(o.cfg.Home, "volumes", "main", "listens"))
		return err == nil
	})
	// The same port of the machine itself is another one.
	if l, err := net.Listen("tcp", "127.0.0.1:3456"); err == nil {
		defer l.Close()
	}
	p := w.comes(client.Visit{Way: visit.Preview, Port: 3456})
	sent := bytes.Repeat([]byte("hello, port "), 100_000)
	for number := range 3 {
		conn := &person{End: duplex.New(unlinked, 0, 0), t: t, admitted: p.admitted}
		w.joins(conn, number+1)
		go func() {
			_ = conn.Write(t.Context(), duplex.Piece{Stream: connector.VisitInput, Data: sent})
			conn.Finish(nil)
		}()
		var got []byte
		for {
			piece, err := conn.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, piece.Data...)
			conn.Took(piece.End)
		}
		if len(got) != len(sent) || got[0] != ' ' || got[len(got)-1] != 'h' {
			t.Errorf("%d of %d bytes came back", len(got), len(sent))
		}
	}
	p.Finish(nil)
	if end := w.endOfVisit(p.admitted.Visit); end.In != int64(3*len(sent)) || end.Out != end.In || end.Streams != 4 || end.Reason != "exited" {
		t.Errorf("the record %+v", end)
	}
	server.Finish([]byte(connector.VisitLeave))
	w.endOfVisit(server.admitted.Visit)
}
