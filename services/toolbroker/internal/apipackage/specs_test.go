package apipackage_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

// spec is a large document that somebody publishes. It comes from a Go module that carries it for its own tests, by way
// of the module cache, and is no part of this program.
type spec struct {
	module, file string
}

var (
	githubSpec     = spec{"github.com/ogen-go/ogen@v1.25.0", "_testdata/examples/api.github.com.json"}
	kubernetesSpec = spec{"github.com/ogen-go/ogen@v1.25.0", "_testdata/examples/k8s.json"}
	stripeSpec     = spec{"github.com/stripe/stripe-mock@v0.203.0", "embedded/openapi/spec3.json"}
	docusignSpec   = spec{"github.com/pb33f/libopenapi@v0.42.5", "test_specs/docusignv3.1.json"}
	asanaSpec      = spec{"github.com/pb33f/libopenapi@v0.42.5", "test_specs/asana.yaml"}
)

var modules sync.Map // of module to func() (string, error)

// source gives the document in the module cache, which is asked once for each module.
func (s spec) source(t *testing.T, m apipackage.Manifest) apipackage.Source {
	t.Helper()
	load, _ := modules.LoadOrStore(s.module, sync.OnceValues(func() (string, error) { return download(s.module) }))
	dir, err := load.(func() (string, error))()
	if err != nil {
		t.Fatalf("%s carries the document %s, and cannot be had: %v", s.module, path.Base(s.file), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	sub, err := fs.Sub(root.FS(), path.Dir(s.file))
	if err != nil {
		t.Fatal(err)
	}
	return apipackage.Source{Files: sub, Document: path.Base(s.file), Manifest: m}
}

func download(module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Dir = os.TempDir() // outside of this module, whose go.mod is left alone
	out, runErr := cmd.Output()
	var answer struct{ Dir, Error string }
	if err := json.Unmarshal(out, &answer); err != nil {
		return "", errorf("go mod download: %v", runErr)
	}
	if answer.Error != "" {
		return "", errorf("go mod download: %s", answer.Error)
	}
	return answer.Dir, nil
}

// measured runs f and says how far the heap grew above what was there.
func measured(f func()) (peak, kept uint64, took time.Duration) {
	live := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	runtime.GC()
	base := live()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				peak = max(peak, live())
			}
		}
	}()
	began := time.Now()
	f()
	took = time.Since(began)
	close(stop)
	<-done
	runtime.GC()
	return max(peak, base) - base, max(live(), base) - base, took
}
