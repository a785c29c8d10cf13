package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// ViewLapse is how long nobody reads a view before it is gone, and its place free: that of an instance that died, or one
// that made itself another after a loss. Whoever did not read for most of it reads no more, and asks for a place anew.
const ViewLapse = 10 * time.Second

// maxLife is the longest name of a life, in bytes.
const maxLife = 200

// Keys of what the provisioner notes on the durable of a view.
const (
	ofService = "execwarden-service"
	ofLife    = "execwarden-life"
)

// Rewind asks for a view that starts anew.
type Rewind struct {
	Life string `json:"life"` // of the instance, see Conn.Life
}

// Rewound is the answer: the durable to read, and how far to read to be current.
type Rewound struct {
	Name    string `json:"name"`
	Pending uint64 `json:"pending"` // messages to read until then
	Last    uint64 `json:"last"`    // a sequence up to which those are everything
	Problem string `json:"problem,omitempty"`
}

// Roster lists the lives of the instances that have a view, those that died within the last 10 s included.
type Roster struct {
	Lives   map[schemas.Service][]string `json:"lives"`
	Problem string                       `json:"problem,omitempty"`
}

// ServeViews gives instances their views, and says which instances there are. A view has no position of its own, so its
// consumer is made afresh, by the boot user. It serves until ctx ends.
func ServeViews(ctx context.Context, boot *Conn, log *slog.Logger) error {
	v := views{boot: boot}
	var running sync.WaitGroup
	defer running.Wait()
	for method, answer := range map[string]func(context.Context, schemas.Service, []byte) any{"rewind": v.rewind, "roster": v.roster} {
		sub, err := boot.NC.Subscribe(RPCSubject(Provisioner, method, "*"), func(m *nats.Msg) {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				asker := schemas.Service(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
				body, err := json.Marshal(answer(ctx, asker, m.Data))
				if err == nil {
					err = m.Respond(body)
				}
				if err != nil {
					log.Error("provisioner", "method", method, "asker", asker, "err", err)
				}
			})
		})
		if err != nil {
			return fmt.Errorf("serve %s: %w", method, err)
		}
		defer func() { _ = sub.Unsubscribe() }() // a connection that is gone has no subscription
	}
	<-ctx.Done()
	return nil
}

type views struct {
	boot *Conn
	mu   sync.Mutex // one place is given away at a time
}

func (v *views) rewind(ctx context.Context, asker schemas.Service, body []byte) any {
	var q Rewind
	if err := json.Unmarshal(body, &q); err != nil || q.Life == "" || len(q.Life) > maxLife {
		return Rewound{Problem: "a view is asked for by an instance that names itself"}
	}
	r, err := v.place(ctx, asker, q.Life)
	if err != nil {
		r.Problem = err.Error()
	}
	return r
}

// place makes the view of an instance in the place that it has, or in a free one.
func (v *views) place(ctx context.Context, asker schemas.Service, life string) (Rewound, error) {
	i := slices.IndexFunc(schemas.Hearings(), func(h schemas.Hearing) bool { return h.Service == asker && h.View })
	if i < 0 {
		return Rewound{}, fmt.Errorf("%s has no view", asker)
	}
	h := schemas.Hearings()[i]
	v.mu.Lock()
	defer v.mu.Unlock()
	taken, err := v.taken(ctx, h.Stream)
	if err != nil {
		return Rewound{}, err
	}
	name := ""
	for _, n := range h.Views() {
		switch t, ok := taken[n]; {
		case ok && t.life == life:
			if err := v.boot.JS.DeleteConsumer(ctx, string(h.Stream), n); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return Rewound{}, err
			}
			name = n
		case !ok && name == "":
			name = n
		}
	}
	if name == "" {
		return Rewound{}, problem.New(problem.Busy, "%s has %d instances already", asker, schemas.MaxViews)
	}
	// Looked at first: what is stored between the two is among the pending, or after them, and never claimed to be heard.
	stream, err := v.boot.JS.Stream(ctx, string(h.Stream))
	if err != nil {
		return Rewound{}, err
	}
	c, err := v.boot.JS.CreateConsumer(ctx, string(h.Stream), jetstream.ConsumerConfig{
		Durable: name, FilterSubject: h.Filter, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: ViewLapse,
		Metadata: map[string]string{ofService: string(asker), ofLife: life},
	})
	if err != nil {
		return Rewound{}, err
	}
	return Rewound{Name: name, Pending: c.CachedInfo().NumPending, Last: stream.CachedInfo().State.LastSeq}, nil
}

func (v *views) roster(ctx context.Context, _ schemas.Service, _ []byte) any {
	taken, err := v.taken(ctx, schemas.Control)
	if err != nil {
		return Roster{Problem: err.Error()}
	}
	r := Roster{Lives: map[schemas.Service][]string{}}
	for _, t := range taken {
		r.Lives[t.service] = append(r.Lives[t.service], t.life)
	}
	return r
}

type taker struct {
	service schemas.Service
	life    string
}

// taken says who has which view.
func (v *views) taken(ctx context.Context, of schemas.Stream) (map[string]taker, error) {
	stream, err := v.boot.JS.Stream(ctx, string(of))
	if err != nil {
		return nil, err
	}
	taken := map[string]taker{}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		if life := c.Config.Metadata[ofLife]; life != "" {
			taken[c.Name] = taker{schemas.Service(c.Config.Metadata[ofService]), life}
		}
	}
	return taken, list.Err()
}

// AskRoster asks which instances have a view.
func AskRoster(ctx context.Context, c *Conn) (Roster, error) {
	return askProvisioner(ctx, c, "roster", struct{}{}, func(r Roster) string { return r.Problem })
}

// AskRewind asks for the view of the instance that c is of, started anew.
func AskRewind(ctx context.Context, c *Conn) (Rewound, error) {
	return askProvisioner(ctx, c, "rewind", Rewind{c.Life()}, func(r Rewound) string { return r.Problem })
}

func askProvisioner[A, Q any](ctx context.Context, c *Conn, method string, q Q, failed func(A) string) (a A, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	m, err := c.NC.RequestWithContext(ctx, RPCSubject(Provisioner, method, c.User()), body)
	if err != nil {
		return a, problem.Wrap(err, problem.Unavailable, "the provisioner does not answer; is it running?")
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, err
	}
	if why := failed(a); why != "" {
		return a, problem.New(problem.Unavailable, "the provisioner could not do it: %s", why)
	}
	return a, nil
}
