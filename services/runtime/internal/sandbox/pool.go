package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// Pool keeps jailed workers ready and runs scripts in them: one at a time, and those of one run in each.
type Pool struct {
	config Config
	log    *slog.Logger
	image  *os.File
	weak   bool // without namespaces; decided once, in New
	tier   Tier
	report Report

	gate  *gate
	lot   lot
	toll  toll
	ready chan *worker   // unbuffered: a worker waits in the hands of its nurse
	spare chan *worker   // the same, of the one that only a tenant without another script is given
	start chan startWork // to the thread that forks
	// hungry counts the scripts that found no worker ready; hunger wakes a nurse that lets others run first.
	hungry atomic.Int32
	hunger chan struct{}
	// sparing is held while the spared worker is made.
	sparing sync.Mutex

	ctx   context.Context // ends with Close
	close context.CancelFunc
	// tasks are the nurses, the forking thread, running scripts and the reaping of used workers.
	tasks  sync.WaitGroup
	mu     sync.Mutex // guards closed against tasks that start while Close waits
	closed bool
}

// New checks the worker program, starts one worker and judges how it is isolated. It refuses what is not enough for
// other people's scripts, unless the configuration allows that. ctx bounds only this; Close ends the pool.
func New(ctx context.Context, config Config, log *slog.Logger) (*Pool, error) {
	config = config.WithDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	image, err := openImage(config.WorkerPath, config.WorkerDigest)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		config: config, log: log, image: image, gate: newGate(config),
		ready: make(chan *worker), spare: make(chan *worker), start: make(chan startWork), hunger: make(chan struct{}),
	}
	p.ctx, p.close = context.WithCancel(context.Background())
	p.tasks.Go(p.fork)

	first, err := p.probe(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	p.tasks.Go(func() { p.nurse(first, p.ready) })
	for range config.Ready - 1 {
		p.tasks.Go(func() { p.nurse(nil, p.ready) })
	}
	p.tasks.Go(func() { p.nurse(nil, p.spare) })
	return p, nil
}

// probe starts the first worker and decides what this host can do.
func (p *Pool) probe(ctx context.Context) (*worker, error) {
	w, err := p.spawn(ctx)
	if p.config.AllowWeak && errors.Is(err, errNoNamespaces) {
		p.log.WarnContext(ctx, "no namespaces for scripts here; running them without", "error", err)
		p.weak = true
		w, err = p.spawn(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, problem.Wrap(err, problem.Unavailable, "no script worker can be started")
	}
	p.report, p.tier = w.report, w.report.Tier()
	if p.tier == TierWeak && !p.config.AllowWeak {
		p.discard(w)
		return nil, problem.New(problem.Unavailable,
			"script workers are not isolated enough here: seccomp and a network namespace are required (%v)", w.report.Faults)
	}
	p.log.InfoContext(ctx, "script workers", "tier", p.tier, "own_namespaces", w.report.Own, "landlock", w.report.Landlock,
		"seccomp", w.report.Seccomp, "faults", w.report.Faults)
	return w, nil
}

// Tier is how workers are isolated, as the probe found.
func (p *Pool) Tier() Tier { return p.tier }

// Isolation is what held in the probe.
func (p *Pool) Isolation() Report { return p.report }

// State counts the scripts in the pool.
type State struct {
	Running int
	Waiting int // for a place
	Hungry  int // those of Running that wait for a worker
	Parked  int // workers that wait for the next script of their run
}

// State is how full the pool is now.
func (p *Pool) State() State {
	s := p.gate.state()
	s.Hungry, s.Parked = int(p.hungry.Load()), p.lot.size()
	return s
}

// Run runs a script. Its error is a *ScriptError when the script is at fault, a *problem.Error or the context's error
// when it is not (ErrFull when it had no worker), and the Host's own when the Host aborted. What is known of the Result comes with every error.
func (p *Pool) Run(ctx context.Context, tenant string, script Script, host Host) (Result, error) {
	if !p.begin() {
		return Result{}, problem.New(problem.Unavailable, "the script pool is closed")
	}
	defer p.tasks.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(problem.New(problem.Unavailable, "the script pool is closing")) })()

	limits := script.Limits.AtMost(p.config.Limits)
	if err := limits.Validate(); err != nil {
		return Result{}, problem.New(problem.Invalid, "%v", err)
	}
	if len(script.Source) > limits.Source {
		return Result{}, problem.New(problem.TooLarge, "the script is %d bytes; the limit is %d", len(script.Source), limits.Source)
	}
	arrived := time.Now()
	leave, err := p.gate.enter(ctx, tenant)
	if err != nil {
		return Result{}, err
	}
	o := owner{tenant, script.Run}
	result, again, err := p.serve(ctx, o, script, limits, arrived, host)
	leave() // before its worker is parked, on this place
	if again != nil {
		p.park(o, again)
	}
	return result, err
}

// serve runs a script in a worker of its owner, or a new one. It gives the worker back if another script of the owner
// may have it.
func (p *Pool) serve(ctx context.Context, o owner, script Script, limits Limits, arrived time.Time, host Host) (Result, *worker, error) {
	alone := p.gate.alone(o.tenant)
	var w *worker
	if script.Run != "" {
		w = p.resume(o)
	}
	p.makeRoom() // after the owner's own left it
	warm := w != nil
	if !warm {
		var err error
		if w, err = p.fresh(ctx, o.tenant, alone, arrived); err != nil {
			return Result{}, nil, err
		}
	}
	if !alone && p.gate.isShared() {
		w.giveWay(niceOther)
	}
	if err := host.Started(ctx); err != nil {
		p.discard(w)
		return Result{}, nil, err
	}
	s := newSession(p, w, limits, host)
	s.result.Stats.Warm, s.result.Stats.Wait = warm, time.Since(arrived)
	result, err := s.run(ctx, script)
	if spoilt(err) {
		p.toll.charge(o.tenant, time.Now())
	}
	if !s.sound || p.config.Idle < 0 {
		p.discard(w)
		w = nil
	}
	return result, w, err
}

// begin counts a running script, unless the pool is closed. The caller says tasks.Done.
func (p *Pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.tasks.Add(1)
	return true
}

// fresh gives a worker that ran nothing, once the tenant has paid for those that it spoilt beside others.
func (p *Pool) fresh(ctx context.Context, tenant string, alone bool, arrived time.Time) (*worker, error) {
	if p.gate.isShared() {
		patient, cancel := context.WithTimeoutCause(ctx, p.config.Patience-time.Since(arrived),
			full("the scripts of this tenant used up too many workers in the last seconds"))
		defer cancel()
		if err := p.toll.pay(patient, tenant); err != nil {
			return nil, err
		}
	}
	return p.take(ctx, alone, p.config.Patience-time.Since(arrived))
}

// spoilt says whether a script was stopped, or broke its worker, by its own doing.
func spoilt(err error) bool {
	var script *ScriptError
	return errors.As(err, &script) && wire.Spoils(script.Code)
}

// take waits for a worker. A tenant that fills the pool with scripts takes every worker that is ready, and one remains
// for whoever has none running.
func (p *Pool) take(ctx context.Context, alone bool, patience time.Duration) (*worker, error) {
	var spare chan *worker // nil: never
	if alone {
		spare = p.spare
	}
	select {
	case w := <-p.ready:
		return w, nil
	default:
	}
	select {
	case w := <-spare:
		return w, nil
	default:
	}
	p.hungry.Add(1)
	defer p.hungry.Add(-1)
	select {
	case p.hunger <- struct{}{}:
	default: // nobody pauses, or one was woken already
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case w := <-p.ready:
		return w, nil
	case w := <-spare:
		return w, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-wait.C:
		return nil, full("no script worker was ready within %s", p.config.Patience)
	}
}

// Spare starts a worker that nobody needs and ends it, for whoever measures what that takes.
func (p *Pool) Spare(ctx context.Context) error {
	if !p.begin() {
		return problem.New(problem.Unavailable, "the script pool is closed")
	}
	defer p.tasks.Done()
	w, err := p.spawn(ctx)
	if err == nil {
		p.discard(w)
	}
	return err
}

// discard ends a worker; it is reaped in the background.
func (p *Pool) discard(w *worker) {
	w.kill()
	p.tasks.Go(func() { <-w.exited })
}

// Close ends every script and worker and returns when all of their processes and goroutines are gone.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.close()
	p.tasks.Wait()
	p.image.Close()
}

// nurse raises one worker after another and holds each until somebody takes it.
func (p *Pool) nurse(w *worker, offer chan<- *worker) {
	pause := newBackoff()
	for p.ctx.Err() == nil {
		if w == nil {
			var err error
			if w, err = p.raise(offer); err != nil {
				if p.ctx.Err() == nil {
					p.log.Error("a script worker did not start", "error", err)
				}
				pause.wait(p.ctx)
				continue
			}
		}
		select {
		case offer <- w:
			pause.reset()
			p.letRun()
		case <-w.exited:
			p.log.Warn("a script worker ended before it had a script", "state", w.end.String(), "stderr", w.stderr.String())
			p.discard(w)
			pause.wait(p.ctx)
		case <-p.ctx.Done():
			p.discard(w)
		}
		w = nil
	}
}

// raise starts a worker for a nurse. The one that is spared is made before others are begun: who has no other script does
// not wait for the replacements of what a tenant with many used up.
func (p *Pool) raise(offer chan<- *worker) (*worker, error) {
	if offer == p.spare {
		p.sparing.Lock()
		defer p.sparing.Unlock()
	} else {
		p.awaitSpared()
	}
	return p.spawn(p.ctx)
}

func (p *Pool) awaitSpared() {
	p.sparing.Lock()
	defer p.sparing.Unlock()
}

// letRun gives the script that just got its worker a head start before the next worker is made: a fork costs a
// processor several milliseconds, which is longer than most scripts take. Nobody is made to wait for it.
func (p *Pool) letRun() {
	const headStart = 5 * time.Millisecond
	if p.hungry.Load() > 0 {
		return
	}
	pause := time.NewTimer(headStart)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-p.hunger:
	case <-p.ctx.Done():
	}
}

// startWork asks the forking thread for a process.
type startWork struct{ started chan<- started }

type started struct {
	w   *worker
	err error
}

// fork starts every worker from one OS thread that lives as long as the pool: a worker dies with the thread that
// started it.
func (p *Pool) fork() {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, and nobody inherits it
	for {
		select {
		case work := <-p.start:
			w, err := startWorker(p.image, p.config.Limits, p.weak)
			work.started <- started{w, err}
		case <-p.ctx.Done():
			return
		}
	}
}

var errNoNamespaces = errors.New("the kernel refused namespaces")

// spawn starts a worker and waits for its hello.
func (p *Pool) spawn(ctx context.Context) (*worker, error) {
	answer := make(chan started, 1)
	select {
	case p.start <- startWork{answer}:
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s := <-answer // the fork itself does not wait for anything
	if s.err != nil {
		if !p.weak && (errors.Is(s.err, syscall.EPERM) || errors.Is(s.err, syscall.EINVAL) || errors.Is(s.err, syscall.ENOSPC)) {
			return nil, errors.Join(errNoNamespaces, s.err)
		}
		return nil, s.err
	}
	const helloTime = 30 * time.Second // a machine may be very busy
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	defer context.AfterFunc(ctx, s.w.kill)()
	defer context.AfterFunc(p.ctx, s.w.kill)()
	if err := s.w.awaitHello(); err != nil {
		return nil, err
	}
	return s.w, nil
}
