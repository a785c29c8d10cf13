package sandbox

import "time"

// stopwatch counts time down except while it is paused. One goroutine uses it.
type stopwatch struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

func newStopwatch(left time.Duration) *stopwatch {
	return &stopwatch{left: left, since: time.Now(), timer: time.NewTimer(left)}
}

func (s *stopwatch) over() <-chan time.Time { return s.timer.C }
func (s *stopwatch) stop()                  { s.timer.Stop() }

func (s *stopwatch) pause() {
	s.timer.Stop()
	s.left -= time.Since(s.since)
}

func (s *stopwatch) resume() {
	s.since = time.Now()
	s.timer.Reset(max(0, s.left))
}
