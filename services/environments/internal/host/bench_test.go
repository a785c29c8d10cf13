package host_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

// quantiles reports p50 and p95 of what each round took.
func quantiles(b *testing.B, round func()) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		round()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50_us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95_us")
}

// ways to run a command, the host's own first.
func ways(b *testing.B, box *box) map[string]func(argv ...string) {
	plain := func(argv ...string) {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %v %s", argv, err, out)
		}
	}
	return map[string]func(argv ...string){
		"1_fork_exec": plain,
		"2_shim": func(argv ...string) {
			if a := box.do(box.order("exec", machine.ExecArgs{Argv: argv})); a.State != connector.Done || a.ToolError {
				b.Fatalf("%+v %s", a, a.Result)
			}
		},
		"3_bubblewrap": func(argv ...string) {
			if _, err := exec.LookPath("bwrap"); err != nil {
				b.Skip("bubblewrap is not here")
			}
			plain(append([]string{"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--"}, argv...)...)
		},
		"4_docker_exec": func(argv ...string) {
			if exec.Command("docker", "inspect", "bench-env").Run() != nil {
				b.Skip("there is no container bench-env to run commands in")
			}
			plain(append([]string{"docker", "exec", "bench-env"}, argv...)...)
		},
	}
}

func BenchmarkTrue(b *testing.B) { benchmark(b, "true") }

func BenchmarkOutput1MiB(b *testing.B) { benchmark(b, "head", "-c", "1048576", "/dev/zero") }

func benchmark(b *testing.B, argv ...string) {
	box := newBox(b, "")
	all := ways(b, box)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(name, func(b *testing.B) { quantiles(b, func() { all[name](argv...) }) })
	}
}

// BenchmarkRevoke is from the order to end an attachment to the word that nothing of its 20 commands is left.
func BenchmarkRevoke(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		box := newBox(b, "execs: 32")
		for range 20 {
			box.do(box.order("exec", machine.ExecArgs{Background: true, Command: "sleep 600 & sleep 601"}))
		}
		b.StartTimer()
		began := time.Now()
		ended, err := box.End(b.Context(), connector.End{Attachment: box.lease.Attachment, Revoked: true})
		took = append(took, time.Since(began))
		if err != nil || ended.Survivors != 0 || ended.Killed < 40 {
			b.Fatalf("%+v, %v", ended, err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50_us")
}

// BenchmarkAttach is from a lease to the end of the first command under it.
func BenchmarkAttach(b *testing.B) {
	box := newBox(b, "max_volumes: 64")
	n := 0
	quantiles(b, func() {
		n++
		box.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: fmt.Sprint("v", n%50), Epoch: 1}
		if err := box.Open(b.Context(), box.lease); err != nil {
			b.Fatal(err)
		}
		if e := box.sh("echo works"); strings.TrimSpace(e.Stdout) != "works" {
			b.Fatalf("%+v", e)
		}
		if _, err := box.End(b.Context(), connector.End{Attachment: box.lease.Attachment, Revoked: true}); err != nil {
			b.Fatal(err)
		}
	})
}
