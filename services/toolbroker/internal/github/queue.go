package github

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// queue lets writing requests pass one at a time and some time apart, as GitHub asks of whoever makes many.
type queue struct {
	every time.Duration
	most  int64

	waiting atomic.Int64
	turn    chan struct{}
	last    time.Time // when the last one ended; whoever has the turn may look
}

func newQueue(every time.Duration, most int) *queue {
	return &queue{every: every, most: int64(most), turn: make(chan struct{}, 1)}
}

// enter waits for the turn. The caller leaves when its answer is there.
func (q *queue) enter(ctx context.Context) (leave func(), err error) {
	defer q.waiting.Add(-1)
	if q.waiting.Add(1) > q.most+1 { // the one that is next does not wait for others
		return nil, problem.New(problem.Busy, "too many writes wait for this GitHub credential; try again later")
	}
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !q.last.IsZero() {
		if err := sleep(ctx, time.Until(q.last.Add(q.every))); err != nil {
			<-q.turn
			return nil, err
		}
	}
	return func() {
		q.last = time.Now()
		<-q.turn
	}, nil
}
