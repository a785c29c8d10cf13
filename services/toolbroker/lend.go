package toolbroker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/toolbroker/internal/gitrelay"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
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

// loan is one call that a connection lends to, on the one attachment that it was admitted for.
type loan struct {
	tenant     id.Tenant
	env        id.Environment
	work       *executor.Work
	lent       machine.Lent
	connection id.Connection
	ctx        context.Context // ends with what allows the call
	leave      func()
	requests   int
	idle       time.Time // since when there is no request
}

// request is one request of git, while it is carried.
type request struct {
	*loan
	up, down *gitrelay.Pipe
	cancel   context.CancelCauseFunc
	answered chan struct{} // closed when the answer's kind is known, or there will be none
	kind     string
	moved    time.Time // under lending's lock

	// The last piece of each direction, which a machine that was cut off asks for again.
	putting, getting sync.Mutex
	put, got         int
	piece            *nats.Msg
}

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

var ofRun = regexp.MustCompile(`^[a-z0-9_-]{1,100}$`)

// open checks everything that a request rests on, and begins it. What is asked of which repository is the call's to say.
func (l *lending) open(tenant id.Tenant, env id.Environment, raw []byte) (connector.GitOpened, error) {
	var q connector.GitOpen
	if len(raw) > 4<<10 || json.Unmarshal(raw, &q) != nil {
		return connector.GitOpened{}, problem.New(problem.Invalid, "the request cannot be read")
	}
	if _, err := id.Parse[id.Call](string(q.Call)); err != nil || !ofRun.MatchString(string(q.Run)) || len(q.Protocol) > 64 || strings.ContainsAny(q.Protocol, "\r\n") {
		return connector.GitOpened{}, problem.New(problem.Invalid, "the request cannot be read")
	}
	l.mu.Lock()
	one, known := l.loans[q.Call]
	l.mu.Unlock()
	if known {
		// It may have its outcome by now; what it rests on is watched meanwhile.
		if err := l.underway(one); err != nil {
			return connector.GitOpened{}, err
		}
	} else {
		var err error
		if one, err = l.begin(tenant, env, q); err != nil {
			return connector.GitOpened{}, err
		}
	}
	switch {
	case one.tenant != tenant || one.env != env || one.work.Permit.Attachment != q.Attachment || one.work.Permit.Epoch != q.Epoch:
		return connector.GitOpened{}, problem.New(problem.Denied, "the call is not one of this machine's, or of another attachment")
	case one.ctx.Err() != nil:
		return connector.GitOpened{}, context.Cause(one.ctx)
	}
	if err := l.attachedStill(one); err != nil {
		return connector.GitOpened{}, err
	}
	ask := upstream.Lent{Owner: one.lent.Owner, Name: one.lent.Name, Writes: one.lent.Tool == machine.LentPush, Refs: q.Refs, Protocol: q.Protocol}
	if q.Service != ask.Service() {
		return connector.GitOpened{}, problem.New(problem.Denied, "%.40q is not what %s does", q.Service, one.work.Admitted.Tool)
	}
	provider, _, err := l.providers.provider(tenant, one.connection, "")
	if err != nil {
		return connector.GitOpened{}, err
	}
	lender, ok := provider.(upstream.Lender)
	if !ok {
		return connector.GitOpened{}, problem.New(problem.Invalid, "connection %s lends nothing to machines", one.lent.Connection)
	}
	const bound = 2 * connector.MaxPiece
	r := &request{loan: one, up: gitrelay.NewPipe(int64(l.cfg.GitMaxBytes), bound), down: gitrelay.NewPipe(int64(l.cfg.GitMaxBytes), bound), answered: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(one.ctx)
	r.cancel = cancel
	name := strings.ToLower(rand.Text())
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.requests >= maxLentCall || l.carried >= maxLent || l.ctx.Err() != nil {
		cancel(nil)
		return connector.GitOpened{}, problem.New(problem.Busy, "the broker carries as much as it may; try again")
	}
	one.requests++
	l.carried++
	r.moved = l.now()
	l.requests[name] = r
	l.working.Go(func() {
		l.carry(ctx, r, lender, ask, q.Gzip)
		cancel(nil)
		l.forget(name, r)
	})
	return connector.GitOpened{Broker: l.name, Stream: name}, nil
}

// begin makes the loan of a call.
func (l *lending) begin(tenant id.Tenant, env id.Environment, q connector.GitOpen) (*loan, error) {
	w, err := l.gate.Underway(l.ctx, tenant, q.Run, q.Call, q.Requested, call.Exec)
	if err != nil {
		return nil, err
	}
	if !machine.Lends(w.Admitted.Tool) {
		return nil, problem.New(problem.Denied, "%s is lent nothing", w.Admitted.Tool)
	}
	lent, err := machine.LentOf(w.Admitted.Tool, w.Requested.Body.Args)
	if err != nil || w.Admitted.Lent.Tool != lent.Full() || w.Admitted.Lent.Grant == "" {
		return nil, problem.Wrap(err, problem.Denied, "the call was not admitted for that connection")
	}
	one := &loan{tenant: tenant, env: env, work: w, lent: lent, connection: id.Connection("con_" + lent.Connection), idle: l.now()}
	if one.work.Permit.Attachment != q.Attachment || one.work.Permit.Epoch != q.Epoch {
		return nil, problem.New(problem.Denied, "the call is not one of this machine's, or of another attachment")
	}
	if err := l.attachedStill(one); err != nil {
		return nil, err
	}
	if one.ctx, one.leave, err = l.gate.Enter(l.ctx, w); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if have, twice := l.loans[q.Call]; twice { // Enter lets nobody in twice
		one.leave()
		return have, nil
	}
	l.loans[q.Call] = one
	return one, nil
}

// attachedStill says whether the machine is the one that the call was admitted for, and is attached as then.
func (l *lending) attachedStill(one *loan) error {
	p := one.work.Permit
	all := l.volumes.All(one.tenant)
	i := slices.IndexFunc(all, func(v volume.Defined) bool { return v.Attached != nil && v.Attached.Attachment == p.Attachment })
	switch {
	case i < 0 || all[i].Epoch != p.Epoch:
		return problem.New(problem.Denied, "stale_lease: the attachment has ended")
	case all[i].Environment != one.env:
		return problem.New(problem.Denied, "the call is not one of this machine's, or of another attachment")
	}
	return nil
}

// underway says whether a call still has no outcome.
func (l *lending) underway(one *loan) error {
	a := one.work.Admitted
	_, err := l.gate.Underway(l.ctx, one.tenant, a.Run, a.Call, a.Requested, call.Exec)
	return err
}

// carry makes a request and hands its answer on.
func (l *lending) carry(ctx context.Context, r *request, lender upstream.Lender, ask upstream.Lent, gzipped bool) {
	end := func(err error) {
		r.up.End(err)
		r.down.End(err)
	}
	defer func() {
		select {
		case <-r.answered:
		default:
			close(r.answered)
		}
	}()
	// What waits in a pipe is woken when the call ends.
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer stop()
	if !ask.Refs {
		body := r.up.Reader(ctx)
		var err error
		switch {
		case gzipped && ask.Writes:
			err = problem.New(problem.Invalid, "a push is not compressed once more")
		case gzipped:
			body, err = gitrelay.Unzipped(body)
		case ask.Writes:
			body, err = gitrelay.Push{Ref: "refs/heads/" + r.lent.Branch, Commit: r.lent.Commit}.Check(body)
		}
		if err != nil {
			l.log.Warn("a git request of a machine is refused", "tenant", r.tenant, "environment", r.env, "call", r.work.Admitted.Call, "err", err)
			end(err)
			return
		}
		ask.Body = moving{body, func() { l.move(r) }}
	}
	resp, err := lender.Lend(ctx, ask)
	if err != nil {
		end(err)
		return
	}
	defer resp.Body.Close()
	r.kind = resp.Header.Get("Content-Type")
	close(r.answered)
	buffer := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			l.metrics.git.WithLabelValues("down").Add(float64(n))
			if putErr := r.down.Put(ctx, buffer[:n]); putErr != nil {
				end(putErr)
				return
			}
			l.move(r)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			r.up.End(problem.New(problem.Conflict, "the git server has answered already"))
			r.down.End(err)
			return
		}
	}
}

// moving tells of each read, so that a git server that takes its time is not taken for one that hangs.
type moving struct {
	io.Reader
	moved func()
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.moved()
	return n, err
}

func (l *lending) move(r *request) {
	l.mu.Lock()
	r.moved = l.now()
	l.mu.Unlock()
}

// put takes a piece of a request's body.
func (l *lending) put(r *request, m *nats.Msg) {
	if len(m.Data) > connector.MaxPiece {
		refuseGit(m, problem.New(problem.TooLarge, "a piece has at most %d bytes", connector.MaxPiece))
		return
	}
	n, err := strconv.Atoi(m.Header.Get(connector.HeaderGitSeq))
	r.putting.Lock()
	defer r.putting.Unlock()
	switch {
	case err == nil && n == r.put && n > 0:
		_ = m.Respond(nil) // whoever asked is gone
		return
	case err != nil || n != r.put+1:
		refuseGit(m, problem.New(problem.Conflict, "a piece out of turn"))
		return
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.cfg.GitIdle, problem.New(problem.Timeout, "the git server takes nothing"))
	defer cancel()
	if err := r.up.Put(ctx, m.Data); err != nil {
		refuseGit(m, err)
		return
	}
	r.put = n
	l.metrics.git.WithLabelValues("up").Add(float64(len(m.Data)))
	l.move(r)
	if m.Header.Get(connector.HeaderGitLast) != "" {
		r.up.End(nil)
	}
	_ = m.Respond(nil) // whoever asked is gone
}

// get gives a piece of a response's body, or an empty one when there is none yet.
func (l *lending) get(r *request, m *nats.Msg) {
	n, err := strconv.Atoi(m.Header.Get(connector.HeaderGitSeq))
	r.getting.Lock()
	defer r.getting.Unlock()
	switch {
	case err == nil && n == r.got && n > 0:
		_ = m.RespondMsg(&nats.Msg{Subject: m.Reply, Header: r.piece.Header, Data: r.piece.Data}) // whoever asked is gone
		return
	case err != nil || n != r.got+1:
		refuseGit(m, problem.New(problem.Conflict, "a piece out of turn"))
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, pieceWithin)
	defer cancel()
	out := nats.NewMsg(m.Reply)
	var last bool
	select {
	case <-r.answered:
		if out.Data, last, err = r.down.Take(ctx, connector.MaxPiece); err != nil {
			refuseGit(m, err)
			return
		}
		out.Header.Set(connector.HeaderGitType, r.kind)
		if last {
			out.Header.Set(connector.HeaderGitLast, "1")
		}
		l.move(r)
	case <-ctx.Done(): // an empty piece: the git server takes its time
	}
	r.got, r.piece = n, out
	_ = m.RespondMsg(out) // whoever asked is gone
}

// How long what is over may still be asked for: an answer that was not read to its end, and why a request failed.
const (
	keepAnswer = 30 * time.Second
	keepEnd    = 10 * time.Second
)

// forget lets go of a request that is over, once it was read or nobody reads it.
func (l *lending) forget(name string, r *request) {
	if r.down.Fault() == nil {
		read, cancel := context.WithTimeout(l.ctx, keepAnswer)
		r.down.Emptied(read)
		cancel()
	}
	l.mu.Lock()
	l.carried--
	r.requests--
	r.idle = l.now()
	l.mu.Unlock()
	timer := time.NewTimer(keepEnd)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, name)
}

// look ends what nothing moves in, and what belongs to calls that are over or attachments that have ended.
func (l *lending) look() {
	l.mu.Lock()
	for _, r := range l.requests {
		if l.now().Sub(r.moved) > l.cfg.GitIdle {
			r.cancel(problem.New(problem.Timeout, "nothing came from the git server, or from git, for %s (git_idle)", l.cfg.GitIdle))
		}
	}
	loans := slices.Collect(maps.Values(l.loans))
	l.mu.Unlock()
	for _, one := range loans {
		err := l.attachedStill(one)
		if err == nil {
			err = context.Cause(one.ctx)
		}
		if err == nil {
			err = l.underway(one)
		}
		l.mu.Lock()
		over := one.ctx.Err() != nil || err != nil && !executor.Later(err)
		if over {
			for _, r := range l.requests {
				if r.loan == one {
					r.cancel(err)
				}
			}
		}
		if one.requests == 0 && (over || l.now().Sub(one.idle) > keepAnswer) {
			delete(l.loans, one.work.Admitted.Call)
			one.leave()
		}
		l.mu.Unlock()
	}
}
