package boot

import (
	"context"
	"crypto/ed25519"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
)

// Service is a program's one thing to do. Run returns when ctx has ended and everything that it started has too.
type Service interface {
	Run(ctx context.Context) error
}

// Deps is what every service is given.
type Deps struct {
	Service schemas.Service
	Version string
	Conn    *bus.Conn
	Log     *eventlog.Log
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	Health  *Health
	Master  vault.Master      // seals secrets; only services that keep some use it
	Root    ed25519.PublicKey // the deployment's root key
}

// Router makes the service's event router.
func (d Deps) Router() (*bus.Router, error) {
	return bus.NewRouter(d.Conn, d.Service, d.Logger, d.Metrics)
}

// Answer answers the service's RPCs until the server is closed. With that the service has arrived.
func (d Deps) Answer(methods ...rpc.Method) (*rpc.Server, error) {
	s, err := rpc.Serve(d.Conn, d.Service, d.Version, d.Logger, methods...)
	if err == nil {
		d.Arrived()
	}
	return s, err
}

// Arrived says that the service does its work now. Until then its program is not ready.
func (d Deps) Arrived() { d.Health.Arrived(string(d.Service)) }

// View makes the service's view of some kinds of control events, of all when none is named, and a readiness check of it.
func (d Deps) View(apply func(eventlog.Stored), kinds ...string) *eventlog.View {
	v := eventlog.NewView(d.Conn, d.Log, d.Logger, apply, kinds...)
	d.Health.Check(string(d.Service)+" view", func(context.Context) error { return v.Current() })
	return v
}
