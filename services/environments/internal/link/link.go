package link

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/environments/internal/host"
)

// Machine carries out what was checked.
type Machine interface {
	Manifest() environment.Manifest
	// Open makes an attachment's volume ready.
	Open(ctx context.Context, l connector.Lease) error
	// Do carries an order out, once: the same order again is answered as the first time, or as under way.
	Do(ctx context.Context, o connector.Order) connector.Answer
	// Cancel ends what a call began, or sees to it that it never begins.
	Cancel(ctx context.Context, c connector.Cancel) connector.Answer
	// End ends everything of an attachment, and counts what is left.
	End(ctx context.Context, e connector.End) (connector.Ended, error)
	// Checkpoint, Restore and Clone copy a volume on which nothing runs.
	Checkpoint(ctx context.Context, c connector.Checkpoint) (connector.Checkpointed, error)
	Restore(ctx context.Context, r connector.Restore) (connector.Copied, error)
	Clone(ctx context.Context, c connector.Clone) (connector.Copied, error)
	// OpenVisit begins a person's visit, or goes on with it; TakeVisit takes what they send.
	OpenVisit(ctx context.Context, v connector.Visit, o connector.OpenVisit, fresh bool, send func([]byte) error) error
	TakeVisit(v id.Visit, stream int, message []byte)
	// EndedVisits are those whose end is not on record; ToldVisit says that it is.
	EndedVisits() []visit.Ended
	ToldVisit(id.Visit)
	// Probe really runs a command and moves a file.
	Probe(ctx context.Context) error
	// EndTooLarge ends what runs on volumes that hold more than they may, and containers whose time is over.
	EndTooLarge(ctx context.Context)
	// Execs is how many commands run.
	Execs() int
	// Known lists the attachments of an earlier life, whose commands may run on.
	Known() []connector.Lease
	// PassOn hands what commands print to sink until ctx ends.
	PassOn(ctx context.Context, sink func(context.Context, host.Printed) error) error
	// Borrow sets who makes git requests with connections' credentials.
	Borrow(b host.Broker)
	// OrphanGrace is how long what runs may go on when nobody renews its attachment.
	OrphanGrace() time.Duration
}

// Config says who this connector is.
type Config struct {
	Home    string
	Version string
	Log     *slog.Logger
	// MaxOrders is how many orders are carried out at once; more are answered with busy.
	MaxOrders int
	// Ready is called when the registry has welcomed this connector, each time.
	Ready func()
}

// Link is one life of a connector.
type Link struct {
	cfg      Config
	identity Identity
	pair     nkeys.KeyPair // the machine's
	machine  Machine
	store    string                    // the receipts' name
	since    atomic.Pointer[time.Time] // they are kept, by the registry's clock; nil: it was never heard
	instance string
	leases   *leases
	keys     *permit.Keyring
	places   chan struct{}
	ends     chan struct{} // places of their own, for what ends orders

	clock    atomic.Int64 // nanoseconds that the registry's clock is ahead of ours
	welcomed atomic.Bool
	fenced   chan struct{} // closed when another connector took over
	fencing  sync.Once
	poked    chan struct{} // beat at once
	working  sync.WaitGroup
	nc       *nats.Conn // of Run
}

// ErrFenced ends a connector whose place another one took.
var ErrFenced = problem.New(problem.Conflict, "another connector with this identity took over; two machines must not share one")

// New reads who this machine is.
func New(cfg Config, machine Machine) (*Link, error) {
	identity, err := LoadIdentity(cfg.Home)
	if err != nil {
		return nil, err
	}
	pair, err := loadKey(cfg.Home)
	if err != nil {
		return nil, err
	}
	store, err := LoadStore(cfg.Home)
	if err != nil {
		return nil, err
	}
	l := &Link{
		cfg: cfg, identity: identity, pair: pair, machine: machine, store: store.Name, instance: strings.ToLower(rand.Text()),
		leases: newLeases(time.Now), keys: permit.NewKeyring(identity.Root), places: make(chan struct{}, cfg.MaxOrders), ends: make(chan struct{}, cfg.MaxOrders), fenced: make(chan struct{}), poked: make(chan struct{}, 1),
	}
	if !store.Since.IsZero() {
		l.since.Store(&store.Since)
	}
	l.leases.recall(machine.Known())
	return l, nil
}

// Run serves until ctx ends, over every loss of the network, or until it is fenced.
func (l *Link) Run(ctx context.Context) error {
	nc, err := l.dial(ctx)
	if err != nil || nc == nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer l.working.Wait()
	defer cancel()
	l.machine.Borrow(broker{l, nc, askOnce})
	at := l.identity
	sub, err := nc.Subscribe(bus.EnvironmentSubject(at.Tenant, at.Environment, l.instance, "*"), func(m *nats.Msg) { l.hear(ctx, m) })
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	visits, err := nc.Subscribe(bus.VisitTo(at.Tenant, at.Environment, l.instance, "*", "*"), l.takeVisit)
	if err != nil {
		return err
	}
	defer func() { _ = visits.Unsubscribe() }()
	l.nc = nc
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.greet(ctx, nc) })
	group.Go(func() error { return l.every(ctx, time.Second, l.tellVisits) })
	group.Go(func() error { return l.beat(ctx, nc) })
	group.Go(func() error { return l.every(ctx, time.Second, l.endOrphans) })
	group.Go(func() error { return l.every(ctx, connector.DefaultLife.Beat(), l.machine.EndTooLarge) })
	group.Go(func() error { return l.machine.PassOn(ctx, l.print(nc)) })
	group.Go(func() error {
		select {
		case <-l.fenced:
			return ErrFenced
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

// dial connects to the bus through the gateway's one address. It tries for ever: the network may come at any time.
func (l *Link) dial(ctx context.Context) (*nats.Conn, error) {
	public, err := l.pair.PublicKey()
	if err != nil {
		return nil, err
	}
	to, path, err := busURL(l.identity.Server)
	if err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Name(connector.ClientName + l.instance), nats.Nkey(public, l.pair.Sign), nats.CustomInboxPrefix(bus.InboxPrefix(public)),
		nats.ProxyPath(path), nats.SetCustomDialer(dialer{l.identity.Server}),
		nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond), nats.ReconnectJitter(500*time.Millisecond, 2*time.Second),
		nats.RetryOnFailedConnect(true),
		// The pass is short-lived: that it is over, or that the registry is not there to give another, is no reason to stop.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrAuthExpired) {
				l.cfg.Log.Warn("bus", "err", err)
			}
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.welcomed.Store(false)
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Info("disconnected; it is tried again", "err", err)
			}
		}),
	}
	return nats.Connect(to, opts...)
}

// busURL is where the bus is reached at a server: a WebSocket below the server's own address.
func busURL(server string) (to, path string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", problem.Wrap(err, problem.Invalid, "%.200q is no server", server)
	}
	path = strings.TrimSuffix(u.Path, "/") + "/v1/connect"
	scheme := "ws"
	if u.Scheme == "https" {
		scheme = "wss"
	}
	return scheme + "://" + u.Host, path, nil
}

// greet says hello after each connect until it is welcomed.
func (l *Link) greet(ctx context.Context, nc *nats.Conn) error {
	again := false
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		if nc.IsConnected() && !l.welcomed.Load() {
			switch err := l.hello(ctx, nc, again); {
			case err == nil:
				again = true
				l.welcomed.Store(true)
				select {
				case l.poked <- struct{}{}:
				default: // it is about to
				}
				l.cfg.Log.Info("connected", "environment", id.Name(l.identity.Environment), "server", l.identity.Server)
				if l.cfg.Ready != nil {
					l.cfg.Ready()
				}
			case problem.CodeOf(err) == problem.Conflict && again:
				return ErrFenced
			case problem.CodeOf(err) == problem.Denied:
				return err
			default:
				l.cfg.Log.Debug("not welcomed yet", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (l *Link) hello(ctx context.Context, nc *nats.Conn, again bool) error {
	at := l.identity
	h := connector.Hello{Instance: l.instance, Store: l.store, Version: l.cfg.Version, Manifest: l.machine.Manifest(), Again: again}
	var err error
	if h.Proof, err = l.pair.Sign(connector.HelloText(h)); err != nil {
		return err
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, bus.MachineSubject(at.Tenant, at.Environment, "hello"), raw)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the registry does not answer")
	}
	var r connector.Reply[connector.Leases]
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the registry's answer cannot be read")
	}
	if r.Code != "" {
		return problem.New(problem.Code(r.Code), "%s", r.Message)
	}
	if l.since.Load() == nil {
		// Before any order is taken. A crash before this is one that began nothing.
		if err := (Store{l.store, r.Body.Now}).save(l.cfg.Home); err != nil {
			return err
		}
		l.since.Store(&r.Body.Now)
	}
	l.take(ctx, r.Body)
	return nil
}

// take learns the time, the keys and the leases. It gives the volumes that could not be made ready.
func (l *Link) take(ctx context.Context, said connector.Leases) map[id.Attachment]string {
	l.clock.Store(int64(time.Until(said.Now)))
	for _, k := range said.Keys {
		if err := l.keys.Add(k); err != nil {
			l.cfg.Log.Error("a key is not trusted", "key", k.Key, "err", err)
		}
	}
	faults := map[id.Attachment]string{}
	for _, lease := range l.leases.renew(said.Leases, said.Life.Or()) {
		if err := l.machine.Open(ctx, lease); err != nil {
			l.leases.notOpen(lease.Attachment)
			l.cfg.Log.Error("a volume is not ready", "volume", lease.Volume, "err", err)
			faults[lease.Attachment] = problem.DetailOf(err).Message
		}
	}
	return faults
}

// now is the registry's time.
func (l *Link) now() time.Time { return time.Now().Add(time.Duration(l.clock.Load())) }

// probeWithin is the least that a machine is given to show that it works.
const probeWithin = 5 * time.Second

// beat tells that the machine works, having tried.
func (l *Link) beat(ctx context.Context, nc *nats.Conn) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if l.welcomed.Load() {
			b := connector.Beat{Instance: l.instance, Execs: l.machine.Execs()}
			probe, cancel := context.WithTimeout(ctx, max(l.leases.beat()*4/5, probeWithin))
			if err := l.machine.Probe(probe); err != nil && ctx.Err() == nil {
				b.Fault = problem.DetailOf(err).Message
				l.cfg.Log.Error("the machine does not work", "err", err)
			}
			cancel()
			if raw, err := json.Marshal(b); err == nil {
				_ = nc.Publish(bus.MachineSubject(l.identity.Tenant, l.identity.Environment, "beat"), raw) // the next one may arrive
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.poked:
		}
		timer.Reset(l.leases.beat())
	}
}

// endOrphans ends what runs under attachments that nobody renews any more.
func (l *Link) endOrphans(ctx context.Context) {
	for _, lease := range l.leases.orphans(l.machine.OrphanGrace()) {
		l.leases.end(lease.Attachment)
		ended, err := l.machine.End(ctx, connector.End{Attachment: lease.Attachment, Epoch: lease.Epoch, Revoked: true})
		l.cfg.Log.Warn("an attachment that nobody renewed is ended", "attachment", lease.Attachment, "killed", ended.Killed, "survivors", ended.Survivors, "err", err)
	}
}

// every does something again and again until ctx ends.
func (l *Link) every(ctx context.Context, pause time.Duration, do func(context.Context)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			do(ctx)
		}
	}
}
