package up

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/shimkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// site is a customer's network as a VM has it: a machine in a network of its own with one cable to where ExecWarden
// listens, and behind it a private network that only the machine reaches.
//
//	ExecWarden (this network)  warden --cable-- x.y.1.2  machine  x.y.2.1 ---- inner  private
type site struct {
	t       *testing.T
	name    string // of the namespaces and cables; short, as names of links are
	machine string // the machine's namespace
	private string

	warden, inner string // addresses: of ExecWarden, and of what is in the private network
}

// newSite makes the networks. Who may not make any skips the test.
func newSite(t *testing.T) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces that processes can be put in")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the program ip (iproute2) is not here")
	}
	s := &site{t: t, name: fmt.Sprintf("ew%d", os.Getpid()%1000000)}
	s.machine, s.private = s.name+"m", s.name+"p"
	subnet := fmt.Sprintf("10.%d.", 128+os.Getpid()%120) // another process may have a site of its own
	s.warden, s.inner = subnet+"1.1", subnet+"2.2"
	if out, err := exec.Command("ip", "netns", "add", s.machine).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %s", out)
	}
	t.Cleanup(func() { s.ip("netns", "del", s.machine) })
	s.ip("netns", "add", s.private)
	t.Cleanup(func() { s.ip("netns", "del", s.private) })
	s.ip("link", "add", s.cable(), "type", "veth", "peer", "name", "up0", "netns", s.machine)
	t.Cleanup(func() { s.ip("link", "del", s.cable()) }) // a namespace goes only with the last process in it
	s.ip("-n", s.machine, "link", "add", "in0", "type", "veth", "peer", "name", "in0", "netns", s.private)
	s.ip("addr", "add", s.warden+"/30", "dev", s.cable())
	s.ip("-n", s.machine, "addr", "add", subnet+"1.2/30", "dev", "up0")
	s.ip("-n", s.machine, "addr", "add", subnet+"2.1/30", "dev", "in0")
	s.ip("-n", s.private, "addr", "add", s.inner+"/30", "dev", "in0")
	for ns, links := range map[string][]string{s.machine: {"lo", "up0", "in0"}, s.private: {"lo", "in0"}} {
		for _, l := range links {
			s.ip("-n", ns, "link", "set", l, "up")
		}
	}
	s.connect()
	return s
}

func (s *site) cable() string { return s.name + "w" }

func (s *site) ip(args ...string) {
	s.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cut takes the cable away; connect puts it back.
func (s *site) cut()     { s.t.Helper(); s.ip("link", "set", s.cable(), "down") }
func (s *site) connect() { s.t.Helper(); s.ip("link", "set", s.cable(), "up") }

// in runs f in a namespace. Sockets that f makes stay there.
func (s *site) in(namespace string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and is nobody else's
		ns, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
			unix.Close(ns)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// reaches says whether an address answers in a namespace; "" is ExecWarden's own.
func (s *site) reaches(namespace, address string) bool {
	dial := func() error {
		conn, err := (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext(s.t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if namespace == "" {
		return dial() == nil
	}
	return s.in(namespace, dial) == nil
}

// serve answers HTTP in the private network.
func (s *site) serve(h http.Handler) (address string) {
	s.t.Helper()
	var l net.Listener
	if err := s.in(s.private, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.inner+":0")
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close(); <-ended })
	return l.Addr().String()
}

// vm is the machine: the execwarden command in the machine's network, as a process that can be frozen and killed.
type vm struct {
	s    *site
	w    *world
	name string
	home string
	cmd  *exec.Cmd
	env  []string

	welcomed atomic.Bool // in this life
}

// Write takes what the connector logs.
func (v *vm) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("msg=connected")) {
		v.welcomed.Store(true)
	}
	return testLog{v.s.t}.Write(p)
}

// newVM enrols the machine from where it is, and starts its connector.
func (s *site) newVM(w *world, name, policy string) *vm {
	s.t.Helper()
	v := &vm{s: s, w: w, name: name, home: shortDir(s.t)}
	v.enrol(policy)
	return v
}

func (v *vm) enrol(policy string) {
	t, w := v.s.t, v.w
	t.Helper()
	if err := w.PutEnvironment(t.Context(), id.Environment("env_"+v.name), environment.Host); err != nil {
		t.Fatal(err)
	}
	e, err := w.CreateEnrolment(t.Context(), v.name, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.home, "connector.yaml"), []byte("volumes: "+filepath.Join(v.home, "volumes")+"\n"+policy), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := v.command("connect", "enrol", "--home", v.home, "--url", w.endpoints.API, "--token", e.Token).CombinedOutput(); err != nil {
		t.Fatalf("enrol: %v: %s", err, out)
	}
	v.start()
	t.Cleanup(func() { v.kill(); shimkit.EndAll(v.home) })
}

func (v *vm) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + v.s.machine, os.Args[0]}, args...)...)
	cmd.Env = append(append(os.Environ(), cliVariable+"=1"), v.env...)
	return cmd
}

// start starts the connector; online waits until it is welcomed and works.
func (v *vm) start() {
	v.s.t.Helper()
	v.cmd = v.command("connect", "--home", v.home, "--policy", filepath.Join(v.home, "connector.yaml"), "--shim", shimkit.BuildShim(v.s.t), "--verbose")
	v.cmd.Stderr = v
	v.welcomed.Store(false)
	if err := v.cmd.Start(); err != nil {
		v.s.t.Fatal(err)
	}
}

func (v *vm) online() {
	v.s.t.Helper()
	buskit.Eventually(v.s.t, "the machine is online", func() bool { return v.welcomed.Load() && v.w.environment(v.name).State == ask.Online })
}

func (v *vm) signal(sig syscall.Signal) {
	v.s.t.Helper()
	if err := v.cmd.Process.Signal(sig); err != nil {
		v.s.t.Fatal(err)
	}
}

// kill ends the connector as nothing else does.
func (v *vm) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait() // killed, as wanted
}

func (v *vm) volume() string { return filepath.Join(v.home, "volumes", "main") }

// decoded gives a run's events, in order.
func (w *world) decoded(run id.Run) (out []schemas.Event) {
	w.t.Helper()
	var after client.Cursor
	for more := true; more; {
		page, err := w.Timeline(w.t.Context(), run, after)
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
				w.t.Fatal(err)
			}
			out = append(out, ev)
		}
		more, after = page.More, page.Next
	}
	return out
}
