package toolbroker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of what is lent to machines.
const (
	maxLent      = 256 // requests at once, of all machines
	maxLentCall  = 4   // of one call: git makes them one after the other
	maxAnswering = 512 // pieces that are being taken or given
	maxMachine   = 32  // of one machine, so that it takes no other's
	lookEvery    = time.Second
	pieceWithin  = 20 * time.Second // that a piece is waited for before the machine asks again
)

// lending is what this broker lends now.
type lending struct {
	*Service
	ctx     context.Context // of the broker's life
	name    string          // in subjects
	working sync.WaitGroup
	places  chan struct{}

	mu       sync.Mutex
	machines map[string]int // answered now, by tenant and environment
	loans    map[id.Call]*loan
	requests map[string]*request // also those that are over and not read yet
	carried  int                 // of them, those that hold something
	ending   bool
}

// lend answers machines' git requests until ctx ends.
func (s *Service) lend(ctx context.Context) error {
	l := &lending{Service: s, ctx: ctx, name: strings.ToLower(rand.Text()), places: make(chan struct{}, maxAnswering), machines: map[string]int{}, loans: map[id.Call]*loan{}, requests: map[string]*request{}}
	nc := s.deps.Conn.NC
	opens, err := nc.QueueSubscribe(bus.GitSubject("*", "*", "open"), string(schemas.Toolbroker), l.hear)
	if err != nil {
		return err
	}
	pieces, err := nc.Subscribe(bus.GitSubject("*", "*", l.name+".*"), l.hear)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			l.look()
		}
	}
	_, _ = opens.Unsubscribe(), pieces.Unsubscribe() // a connection that is gone has no subscription
	l.mu.Lock()
	l.ending = true
	for _, r := range l.requests {
		r.cancel(problem.New(problem.Unavailable, "the broker is ending; try again"))
	}
	l.mu.Unlock()
	l.working.Wait()
	for _, one := range l.loans {
		one.leave()
	}
	return nil
}

// hear takes one message of a connector. Whose it is its subject says, which the bus lets nobody else use.
func (l *lending) hear(m *nats.Msg) {
	token := strings.Split(m.Subject, ".") // ew.git.v1.<tenant>.<environment>.<rest>
	if len(token) < 6 {
		return
	}
	leave, ok := l.enter(token[3] + "." + token[4])
	if !ok {
		refuseGit(m, problem.New(problem.Busy, "the broker carries as much as it may; try again"))
		return
	}
	go func() {
		defer leave()
		tenant, env := id.Tenant(token[3]), id.Environment(token[4])
		if token[5] == "open" {
			opened, err := l.open(tenant, env, m.Data)
			if err != nil {
				l.log.Warn("a git request of a machine is refused", "tenant", tenant, "environment", env, "err", err)
				refuseGit(m, err)
				return
			}
			raw, err := json.Marshal(opened)
			if err == nil {
				_ = m.Respond(raw) // whoever asked is gone
			}
			return
		}
		l.mu.Lock()
		r, ok := l.requests[m.Header.Get(connector.HeaderGit)]
		l.mu.Unlock()
		if !ok || r.tenant != tenant || r.env != env {
			refuseGit(m, problem.New(problem.NotFound, "there is no such request, or not any more"))
			return
		}
		if err := l.attachedStill(r.loan); err != nil {
			r.cancel(err)
			refuseGit(m, err)
			return
		}
		switch token[len(token)-1] {
		case "put":
			l.put(r, m)
		case "get":
			l.get(r, m)
		case "close":
			r.cancel(problem.New(problem.Cancelled, "git gave the request up"))
			_ = m.Respond(nil) // whoever asked is gone
		}
	}()
}

// enter takes a place for one message of a machine, which lend waits for.
func (l *lending) enter(machine string) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending || l.machines[machine] >= maxMachine {
		return nil, false
	}
	select {
	case l.places <- struct{}{}:
	default:
		return nil, false
	}
	l.machines[machine]++
	l.working.Add(1)
	return func() {
		defer l.working.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		<-l.places
		if l.machines[machine]--; l.machines[machine] == 0 {
			delete(l.machines, machine)
		}
	}, true
}

func refuseGit(m *nats.Msg, err error) {
	d := problem.DetailOf(err)
	out := nats.NewMsg(m.Reply)
	out.Header.Set(connector.HeaderGitCode, string(d.Code))
	out.Data = []byte(d.Message)
	_ = m.RespondMsg(out) // whoever asked is gone
}

// How long what is over may still be asked for: an answer that was not read to its end, and why a request failed.
const (
	keepAnswer = 30 * time.Second
	keepEnd    = 10 * time.Second
)
