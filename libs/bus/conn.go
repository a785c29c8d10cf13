package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/problem"
)

// Config says how to reach the bus.
type Config struct {
	URL       string                     // NATS URL; ignored when InProcess is set
	InProcess nats.InProcessConnProvider // the embedded server, which must answer with the current one after a restart
	User      string                     // the service's name; also its inbox prefix
	Password  string
	Instance  string // names this process among those of the service
}

// Conn is a service's connection to the bus.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream

	user     string
	instance string
	life     string
	denials  denials
}

// Connect dials the bus. It tries again for as long as ctx lives, since services and bus start in any order.
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	c := &Conn{user: cfg.User, instance: cfg.Instance, life: cfg.Instance + "-" + rand.Text()}
	opts := []nats.Option{
		nats.Name(cfg.User + "/" + cfg.Instance),
		nats.UserInfo(cfg.User, cfg.Password),
		nats.CustomInboxPrefix(InboxPrefix(cfg.User)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		// With a buffer, a publish could be stored after its caller had been told that it failed.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if subject, ok := deniedSubject(err); ok {
				c.denials.note(subject)
			}
			log.Error("bus", "err", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("bus disconnected", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("bus reconnected") }),
	}
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(cfg.InProcess))
	}
	for {
		nc, err := nats.Connect(cfg.URL, opts...)
		if err == nil {
			c.NC = nc
			break
		}
		if errors.Is(err, nats.ErrAuthorization) {
			return nil, problem.Wrap(err, problem.Unauthenticated, "NATS refused user %q; check its password", cfg.User)
		}
		log.Warn("bus not reachable yet", "err", err)
		select {
		case <-ctx.Done():
			return nil, problem.Wrap(err, problem.Unavailable, "NATS at %q does not answer", cfg.URL)
		case <-time.After(500 * time.Millisecond):
		}
	}
	js, err := jetstream.New(c.NC, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		c.NC.Close()
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	c.JS = js
	return c, nil
}

// User is the service's name on the bus.
func (c *Conn) User() string { return c.user }

// Instance names this process among those of the service.
func (c *Conn) Instance() string { return c.instance }

// Life names this connection's process as long as it lives: no two are alike, whatever instances are called.
func (c *Conn) Life() string { return c.life }

// Close ends the connection after what was published has been sent.
func (c *Conn) Close() {
	_ = c.NC.FlushTimeout(time.Second) // a bus that is gone has nothing to flush to
	c.NC.Close()
}

// InboxPrefix is where a user's answers arrive. No user may listen to another's.
func InboxPrefix(user string) string { return "_INBOX." + user }

// Guard gives a context that ends with a problem of code bus_denied when the server refuses a publish to subject.
// NATS tells denials apart from time-outs only in an asynchronous error.
func (c *Conn) Guard(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := c.denials.watch(subject, func() {
		cancel(problem.New(problem.BusDenied, "NATS permissions of user %s refuse %s; provision the bus with this version's permissions", c.user, subject))
	})
	return ctx, func() { forget(); cancel(context.Canceled) }
}

var deniedPattern = regexp.MustCompile(`(?i)permissions violation for (?:publish|subscription) to "([^"]+)"`)

func deniedSubject(err error) (string, bool) {
	m := deniedPattern.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	return m[1], true
}

// denials wakes those who wait on a subject that was refused.
type denials struct {
	mu      sync.Mutex
	next    int
	waiting map[string]map[int]func()
}

func (d *denials) watch(subject string, wake func()) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[string]map[int]func(){}
	}
	if d.waiting[subject] == nil {
		d.waiting[subject] = map[int]func(){}
	}
	n := d.next
	d.next++
	d.waiting[subject][n] = wake
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting[subject], n)
		if len(d.waiting[subject]) == 0 {
			delete(d.waiting, subject)
		}
	}
}

func (d *denials) note(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, wake := range d.waiting[subject] {
		wake()
	}
}
