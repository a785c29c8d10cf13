package toolbroker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/toolbroker/internal/gitrelay"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
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
