// Package claim makes an effect happen under one owner at a time. A claim is written before the effect and renewed
// while it runs; an owner that cannot renew it in time gives up before anybody may take over.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// How long a claim lasts without renewal, and how often it is renewed. Life is long enough for one lost renewal and
// short enough for a run to go on within seconds of a crash.
const (
	life  = 4 * time.Second
	renew = time.Second
	// margin is how long before the deadline the owner stops, so that clocks may differ by that much.
	margin = 500 * time.Millisecond
)

// Claims claims calls for one instance of one service.
type Claims struct {
	kv    jetstream.KeyValue
	owner string
	now   func() time.Time
}

// Open opens the claims bucket. owner names this process's life: a restarted process is another owner.
func Open(ctx context.Context, conn *bus.Conn, owner string) (*Claims, error) {
	kv, err := conn.JS.KeyValue(ctx, bus.ClaimsBucket)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the claims bucket is not there; is the bus provisioned?")
	}
	return &Claims{kv: kv, owner: owner, now: time.Now}, nil
}

type record struct {
	Admission uint64    `json:"admission"`
	Owner     string    `json:"owner"`
	Epoch     int       `json:"epoch"`
	Deadline  time.Time `json:"deadline"`
}

// Held is a claim that this process owns.
type Held struct {
	claims   *Claims
	key      string
	revision uint64
	record   record
}

// TakenOver says whether another owner held the claim before, so that the effect may have happened.
func (h *Held) TakenOver() bool { return h.record.Epoch > 1 }

// Take claims a call. While another owner holds the claim it is a problem of code busy, to be tried again.
func (c *Claims) Take(ctx context.Context, tenant id.Tenant, call id.Call, admission uint64) (*Held, error) {
	key := string(tenant) + "." + string(call)
	mine := record{Admission: admission, Owner: c.owner, Epoch: 1, Deadline: c.now().Add(life)}
	revision, err := c.kv.Create(ctx, key, mine.bytes())
	if err == nil {
		// A crash from here on leaves a claim that lapses; whoever takes it over knows that the effect may be done.
		return &Held{c, key, revision, mine}, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return nil, problem.Wrap(err, problem.Unavailable, "the call cannot be claimed now")
	}
	entry, err := c.kv.Get(ctx, key)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the claim cannot be read now")
	}
	var theirs record
	if err := json.Unmarshal(entry.Value(), &theirs); err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the claim on %s cannot be read", call)
	}
	if c.now().Before(theirs.Deadline) {
		return nil, problem.New(problem.Busy, "%s is claimed until %s", call, theirs.Deadline.Format(time.RFC3339Nano))
	}
	mine.Epoch = theirs.Epoch + 1
	if revision, err = c.kv.Update(ctx, key, mine.bytes(), entry.Revision()); err != nil {
		return nil, problem.Wrap(err, problem.Busy, "%s was claimed by another instance just now", call)
	}
	return &Held{c, key, revision, mine}, nil
}

// Taken says whether anybody ever claimed the call.
func (c *Claims) Taken(ctx context.Context, tenant id.Tenant, call id.Call) (bool, error) {
	_, err := c.kv.Get(ctx, string(tenant)+"."+string(call))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem.Wrap(err, problem.Unavailable, "the claim cannot be read now")
	}
	return true, nil
}

// Keep runs work under the claim. Its context ends when the claim could not be renewed and is about to lapse.
func (h *Held) Keep(ctx context.Context, work func(context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, renewed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(renewed)
		h.renewUntil(ctx, done, cancel)
	}()
	work(ctx)
	close(done)
	<-renewed
}

func (h *Held) renewUntil(ctx context.Context, done <-chan struct{}, lapse context.CancelCauseFunc) {
	ticker := time.NewTicker(renew)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		next := h.record
		next.Deadline = h.claims.now().Add(life)
		attempt, cancel := context.WithTimeout(ctx, renew/2) // the other half is for renewed
		revision, err := h.claims.kv.Update(attempt, h.key, next.bytes(), h.revision)
		cancel()
		if err == nil {
			h.record, h.revision = next, revision
			continue
		}
		if h.renewed(ctx) {
			continue
		}
		if h.claims.now().After(h.record.Deadline.Add(-margin - renew)) {
			lapse(problem.Wrap(err, problem.Unavailable, "the claim on the call could not be renewed"))
			return
		}
	}
}

// renewed says whether a renewal that failed is there all the same: of one whose answer got lost only the revision is
// missing, and without it no later one would succeed.
func (h *Held) renewed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, renew/2)
	defer cancel()
	entry, err := h.claims.kv.Get(ctx, h.key)
	if err != nil {
		return false
	}
	var there record
	if json.Unmarshal(entry.Value(), &there) != nil || there.Owner != h.record.Owner || there.Epoch != h.record.Epoch ||
		entry.Revision() <= h.revision {
		return false
	}
	h.record, h.revision = there, entry.Revision()
	return true
}

func (r record) bytes() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("claim: a record of plain fields cannot be marshalled: " + err.Error())
	}
	return b
}

// Epoch counts the owners of the claim, from 1.
func (h *Held) Epoch() int { return h.record.Epoch }
