package shim

import (
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stopped does something while no process of the cage runs. The first process of a namespace signals all others in one
// call, which what begins processes does not outrun.
func (s *Shim) stopped(do func()) {
	s.still.Lock()
	defer s.still.Unlock()
	s.everyone(unix.SIGSTOP)
	defer s.everyone(unix.SIGCONT)
	do()
}

// heardWithin is how long the launcher may take to signal. It is one of many processes then.
const heardWithin = 10 * time.Second

func (s *Shim) everyone(sig unix.Signal) {
	if os.Getpid() == 1 { // the launcher, which is stopped as well, is woken with the others
		_ = unix.Kill(-1, sig) // where there is nobody, nobody is told
		return
	}
	if !s.cfg.Rules.Own {
		return // all processes of the machine's user would be meant
	}
	raw, err := json.Marshal(launch{ID: everyoneID, Everyone: sig})
	if err != nil {
		return
	}
	heard := make(chan launched, 1)
	s.mu.Lock()
	s.waiting[everyoneID] = heard
	err = unix.Sendmsg(int(s.socket.Fd()), raw, nil, nil, 0)
	s.mu.Unlock()
	if err == nil {
		select {
		case <-heard:
		case <-s.lost: // and everything with it
		case <-time.After(heardWithin):
		}
	}
	s.mu.Lock()
	delete(s.waiting, everyoneID)
	s.mu.Unlock()
}

// everyoneID is no command's.
const everyoneID = ".everyone"
