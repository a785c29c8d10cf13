package sandbox

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

const (
	maxReady = 1 << 10
	// preparing is how long a worker may take to make its next VM: a machine may be very busy.
	preparing = 30 * time.Second
	// spareCPU is the processor time that a worker has for what is not a script's: its start, and VMs.
	spareCPU = time.Second
)

// park keeps a worker for its owner's next script.
func (p *Pool) park(o owner, w *worker) {
	if !w.regain() {
		p.discard(w) // its owner's next script would be served after everybody's
		return
	}
	k := p.lot.add(o, w)
	p.makeRoom()
	p.tasks.Go(func() { p.keep(k) })
}

// keep minds a parked worker until it is taken, has to go, or is not worth keeping.
func (p *Pool) keep(k *parked) {
	if err := p.prepare(k.worker); err != nil {
		if p.lot.remove(k) { // and else it was ended as it made its VM
			p.log.Debug("a script worker is not kept", "reason", err)
			p.discard(k.worker)
		}
		return
	}
	p.lot.prepared(k)
	idle := time.NewTimer(p.config.Idle)
	defer idle.Stop()
	select {
	case <-k.gone:
		return
	case <-k.worker.exited:
		p.log.Warn("a script worker ended between two scripts", "state", k.worker.end.String(), "stderr", k.worker.stderr.String())
	case <-idle.C:
	case <-p.ctx.Done():
	}
	if p.lot.remove(k) {
		p.discard(k.worker)
	}
}

// prepare waits until a worker is ready for another script, and looks at what it has used. The worker's own word is
// enough for that: one that lies is ended by the kernel under a script of the run that made it a liar.
func (p *Pool) prepare(w *worker) error {
	defer time.AfterFunc(preparing, w.kill).Stop()
	defer context.AfterFunc(p.ctx, w.kill)()
	_, body, err := w.conn.Receive(func(k wire.Kind) int {
		if k == wire.KindReady {
			return maxReady
		}
		return 0
	})
	if err != nil {
		return err
	}
	var ready wire.Ready
	if err := wire.Decode(body, &ready); err != nil {
		return err
	}
	w.used = time.Duration(ready.CPUMicros) * time.Microsecond
	switch {
	case ready.Scripts != w.scripts:
		return fmt.Errorf("%w: it is ready after %d scripts, not %d", wire.ErrProtocol, ready.Scripts, w.scripts)
	case w.used < 0 || w.used+p.config.Limits.CPU+spareCPU > hardCPU(p.config.Limits):
		return fmt.Errorf("it has used %s of processor time", w.used)
	case ready.MemoryBytes > p.config.ParkedMemory:
		return fmt.Errorf("it holds %d bytes", ready.MemoryBytes)
	}
	return nil
}

// resume gives a parked worker of the owner that is alive and has said nothing since it was ready.
func (p *Pool) resume(o owner) *worker {
	for {
		w := p.lot.take(o)
		if w == nil || w.quiet() {
			return w
		}
		p.log.Error("a script worker spoke between two scripts, or ended")
		p.discard(w)
	}
}

// makeRoom ends parked workers that stand where running scripts have to.
func (p *Pool) makeRoom() {
	for _, w := range p.lot.shrink(min(p.config.Parked, p.config.Running-p.gate.state().Running)) {
		p.discard(w)
	}
}

// RunEnded ends the workers that are kept for a run.
func (p *Pool) RunEnded(tenant, run string) {
	for _, w := range p.lot.clear(owner{tenant, run}) {
		p.discard(w)
	}
}

// quiet says whether there is nothing to read from a worker, not even its end.
func (w *worker) quiet() bool {
	if w.conn.Pending() > 0 {
		return false
	}
	raw, err := w.socket.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		nothing = err == unix.EAGAIN
	})
	return err == nil && nothing
}
