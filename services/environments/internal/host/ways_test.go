package host

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
	"github.com/execwarden/execwarden/services/environments/shimkit"
)

// newBare is a machine whose commands are in no container, with one attachment.
func newBare(t *testing.T, policy string) *dock {
	t.Helper()
	home, err := os.MkdirTemp("", "eww")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	p, err := localpolicy.Parse([]byte("volumes: " + filepath.Join(home, "volumes") + "\n" + policy))
	if err != nil {
		t.Fatal(err)
	}
	d := &dock{t: t, cfg: Config{Home: home, Shim: shimkit.BuildShim(t), Policy: p, Log: slog.New(slog.DiscardHandler)},
		lease: connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: 1}}
	t.Cleanup(func() { shimkit.EndAll(home) })
	d.open()
	if err := d.Open(t.Context(), d.lease); err != nil {
		t.Fatal(err)
	}
	return d
}

// client asks the shim of a machine's attachment.
func (d *dock) client() *shim.Client {
	c := shim.Dial(filepath.Join(d.cfg.Home, "attachments", string(d.lease.Attachment)))
	d.t.Cleanup(c.Close)
	return c
}

// Programs that echo what a connection says, and that say something to a port and print the answer.
const (
	pyEcho = `import socket,sys
l=socket.create_server(("127.0.0.1",0)); print(l.getsockname()[1],flush=True)
while True:
  c=l.accept()[0]
  while (b:=c.recv(65536)): c.sendall(b)
  c.close()`
	pySay = `import socket,sys
c=socket.create_connection(("127.0.0.1",int(sys.argv[1]))); c.sendall(b"from inside"); c.shutdown(1)
b=b""
while (p:=c.recv(65536)): b+=p
print(b.decode())`
)

func (d *dock) background(argv ...string) (exec string) {
	d.t.Helper()
	return d.exec(machine.ExecArgs{Argv: argv, Background: true}).Exec
}

// firstLine waits for the first line that a command prints.
func (d *dock) firstLine(c *shim.Client, exec string) string {
	d.t.Helper()
	var text strings.Builder
	for at := int64(0); !strings.Contains(text.String(), "\n"); {
		out, err := c.Read(d.t.Context(), exec, at, 4096, 10*time.Second)
		if err != nil || !out.Exec.Running() {
			d.t.Fatalf("%+v, %v", out, err)
		}
		for _, p := range out.Pieces {
			text.Write(p.Data)
		}
		at = out.Next
	}
	return strings.TrimSpace(text.String())
}

// said says something on a connection, and gives all that is answered.
func said(t *testing.T, conn net.Conn, what string) string {
	t.Helper()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T cannot end one direction", conn)
	}
	defer conn.Close()
	var answer []byte
	done := make(chan error, 1)
	go func() {
		var err error
		answer, err = io.ReadAll(conn)
		done <- err
	}()
	if _, err := io.WriteString(conn, what); err != nil {
		t.Fatal(err)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// outsider listens on the machine's own loopback.
func outsider(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port
}

// What listens in the cage is reached through the shim, what the shim listens on is reached by commands, and neither is by,
// or reaches, anybody else: whether the cage has a network of its own or the machine's.
func TestWays(t *testing.T) {
	for _, network := range []string{"off", "all"} {
		t.Run("network "+network, func(t *testing.T) {
			d := newBare(t, "network: "+network)
			c := d.client()
			port, err := strconv.Atoi(d.firstLine(c, d.background("python3", "-c", pyEcho)))
			if err != nil {
				t.Fatal(err)
			}
			big := strings.Repeat("0123456789abcdef", 1<<16) // a megabyte, through all buffers
			for range 3 {
				conn, err := c.Dial(t.Context(), port)
				if err != nil {
					t.Fatal(err)
				}
				if got := said(t, conn, big); got != big {
					t.Errorf("%d bytes came back of %d", len(got), len(big))
				}
			}
			if _, err := c.Dial(t.Context(), outsider(t)); err == nil {
				t.Error("a port of the machine that is not the cage's was dialled")
			}
			for _, port := range []int{0, -1, 65536, 1} {
				if conn, err := c.Dial(t.Context(), port); err == nil {
					conn.Close()
					t.Errorf("port %d was dialled", port)
				}
			}
			l, err := c.Listen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			inside := l.Addr().(*net.TCPAddr).Port
			heard := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					heard <- err.Error()
					return
				}
				defer conn.Close()
				text, _ := io.ReadAll(conn)
				_, _ = io.WriteString(conn, "to inside")
				heard <- string(text)
			}()
			// Somebody else on the machine: there is no such port for him, or he is not heard.
			if conn, err := net.Dial("tcp4", l.Addr().String()); err == nil {
				_, _ = io.WriteString(conn, "from outside")
				if answer, _ := io.ReadAll(conn); len(answer) > 0 {
					t.Errorf("a stranger was answered %q", answer)
				}
				conn.Close()
			} else if network == "all" {
				t.Errorf("the machine's own network: %v", err)
			}
			e := d.exec(machine.ExecArgs{Argv: []string{"python3", "-c", pySay, fmt.Sprint(inside)}})
			if e.Stdout != "to inside\n" {
				t.Errorf("a command in the cage: %+v", e)
			}
			if got := <-heard; got != "from inside" {
				t.Errorf("heard %q", got)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Accept(); err == nil {
				t.Error("a closed listener accepts")
			}
			if e := d.exec(machine.ExecArgs{Argv: []string{"python3", "-c", pySay, fmt.Sprint(inside)}}); e.Code == nil || *e.Code == 0 {
				t.Errorf("a listener that was closed is still there: %+v", e)
			}
		})
	}
}

// There are only so many ways, one that is closed makes room, and all of them end with the attachment.
func TestWaysAreBounded(t *testing.T) {
	d := newBare(t, "network: off")
	c := d.client()
	port, err := strconv.Atoi(d.firstLine(c, d.background("python3", "-c", strings.Replace(pyEcho, "c=l.accept()[0]\n", "l.accept()[0].recv(1); break\n", 1)+"\nimport time; time.sleep(600)")))
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for {
		conn, err := c.Dial(t.Context(), port)
		if problem.CodeOf(err) == problem.Busy {
			break
		}
		if err != nil || len(open) > 1000 {
			t.Fatalf("%v after %d", err, len(open))
		}
		open = append(open, conn)
	}
	if _, err := c.Listen(t.Context()); problem.CodeOf(err) != problem.Busy {
		t.Errorf("one more listener: %v", err)
	}
	_ = open[1].Close() // nobody inside reads it or ends it
	for {               // until the shim has seen that it is closed
		conn, err := c.Dial(t.Context(), port)
		if err == nil {
			open[1] = conn
			break
		}
		if problem.CodeOf(err) != problem.Busy {
			t.Fatal(err)
		}
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	if _, err := d.End(context.Background(), connector.End{Attachment: d.lease.Attachment}); err != nil {
		t.Fatal(err)
	}
	for i, conn := range open {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("stream %d is open after the end", i)
		}
		conn.Close()
	}
	if err := <-accepted; err == nil {
		t.Error("a listener accepts after the end")
	}
	_ = l.Close() // its shim is gone
	if _, err := c.Dial(t.Context(), port); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// The same in a container, whose first process the shim is.
func TestWaysInAContainer(t *testing.T) {
	d := newDock(t, "")
	c := d.client()
	d.background("sh", "-c", "while true; do echo from inside | nc -l -p 8123; done")
	var conn net.Conn
	for conn == nil { // until nc listens
		var err error
		if conn, err = c.Dial(t.Context(), 8123); err != nil && problem.CodeOf(err) != problem.Unavailable {
			t.Fatal(err)
		}
	}
	if got := said(t, conn, "hello\n"); got != "from inside\n" {
		t.Errorf("answered %q", got)
	}
	if _, err := c.Dial(t.Context(), outsider(t)); err == nil {
		t.Error("a port of the machine was dialled")
	}
	l, err := c.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "to inside\n")
			conn.Close()
		}
	}()
	if conn, err := net.Dial("tcp4", l.Addr().String()); err == nil {
		t.Error("a stranger reaches the port")
		conn.Close()
	}
	if e := d.sh(fmt.Sprintf("nc 127.0.0.1 %d </dev/null", l.Addr().(*net.TCPAddr).Port)); e.Stdout != "to inside\n" {
		t.Errorf("a command in the container: %+v", e)
	}
}
