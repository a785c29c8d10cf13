package engine

import (
	"container/heap"
	"time"

	"github.com/dop251/goja"
)

// clock holds the timers and the time that a script reads. That time starts where the run says and moves only when a
// timer fires, to the instant it was due: what is awaited outside takes no time here, so a replay reads the same.
type clock struct {
	begin   time.Time
	elapsed time.Duration
	timers  timers
	lastID  int
}

type timer struct {
	id       int
	due      time.Duration // on the script's clock
	at       time.Time     // in real time
	every    time.Duration // zero for one shot
	callback goja.Callable
}

func (c *clock) now() time.Time { return c.begin.Add(c.elapsed) }
func (c *clock) idle() bool     { return len(c.timers) == 0 }

// start adds a timer. An interval's turns are at least a millisecond apart.
func (c *clock) start(delay time.Duration, repeat bool, callback goja.Callable) int {
	c.lastID++
	t := &timer{id: c.lastID, callback: callback, due: c.elapsed + delay, at: time.Now().Add(delay)}
	if repeat {
		t.every = max(delay, time.Millisecond)
	}
	heap.Push(&c.timers, t)
	return t.id
}

func (c *clock) clear(id int) {
	for i, t := range c.timers {
		if t.id == id {
			heap.Remove(&c.timers, i)
			return
		}
	}
}

// pop takes the next timer, moves the clock to it, and sets an interval again before its callback can clear it.
func (c *clock) pop() *timer {
	t := heap.Pop(&c.timers).(*timer)
	c.elapsed = max(c.elapsed, t.due)
	if t.every > 0 {
		t.due, t.at = c.elapsed+t.every, time.Now().Add(t.every)
		heap.Push(&c.timers, t)
	}
	return t
}

// wake is ready when the next timer is due; never, without one.
func (c *clock) wake() (<-chan time.Time, func()) {
	if c.idle() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(c.timers[0].at))
	return t.C, func() { t.Stop() }
}

// timers is a heap by due time, then by age.
type timers []*timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].due < t[j].due || t[i].due == t[j].due && t[i].id < t[j].id
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(*timer)) }
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}
