package command

import (
	"sync"
	"time"
)

// progress tells, from the second second on and less and less often, that something is still being done.
func (a *app) progress(doing string) (stop func()) {
	ended := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		began := time.Now()
		for pause := time.Second; ; pause *= 3 {
			timer := time.NewTimer(pause)
			select {
			case <-ended:
				timer.Stop()
				return
			case <-timer.C:
				a.note("%s ... %s", doing, time.Since(began).Round(time.Second))
			}
		}
	})
	return func() { close(ended); told.Wait() }
}
