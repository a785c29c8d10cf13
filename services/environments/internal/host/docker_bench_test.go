package host

import (
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

// BenchmarkDocker measures a command in a container through connector and shim, beside the engine's own exec in the same
// container, and an attachment from nothing to its first command's end.
func BenchmarkDocker(b *testing.B) {
	d := newDock(b, "")
	container := "execwarden-" + string(d.lease.Attachment)
	nothing := machine.ExecArgs{Argv: []string{"/bin/true"}}
	for _, c := range []struct {
		name string
		once func() (took time.Duration)
	}{
		{"shim", timed(func() { d.exec(nothing) })},
		{"engine", timed(func() {
			e, err := d.api.ExecCreate(b.Context(), container, client.ExecCreateOptions{Cmd: nothing.Argv, AttachStdout: true, AttachStderr: true})
			if err != nil {
				b.Fatal(err)
			}
			a, err := d.api.ExecAttach(b.Context(), e.ID, client.ExecAttachOptions{})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = a.Reader.WriteTo(discard{}) // until the command ends
			a.Close()
		})},
		{"attach", func() time.Duration {
			began := time.Now()
			was := d.lease
			d.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: "bench", Epoch: 1}
			if err := d.Open(b.Context(), d.lease); err != nil {
				b.Fatal(err)
			}
			d.exec(nothing)
			took := time.Since(began)
			if _, err := d.End(b.Context(), connector.End{Attachment: d.lease.Attachment, Revoked: true}); err != nil {
				b.Fatal(err)
			}
			d.lease = was
			return took
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, c.once())
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}

func timed(f func()) func() time.Duration {
	return func() time.Duration {
		began := time.Now()
		f()
		return time.Since(began)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
