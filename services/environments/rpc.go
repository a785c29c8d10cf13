package environments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// Bounds of what is asked.
const (
	maxEnrolment    = time.Hour // a token's life
	maxReason       = 4 << 10   // bytes
	maxVolumes      = 64        // of one environment
	maxEnvironments = 1000      // of one tenant
	mainVolume      = "main"
)

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(
		rpc.On("environment_define", s.define),
		rpc.On("environment_list", s.list),
		rpc.On("environment_remove", s.remove),
		rpc.On("environment_drain", s.drain),
		rpc.On("enrolment_create", s.createEnrolment),
		rpc.On("connector_enrol", s.enrol),
		rpc.On("output_read", s.output),
		rpc.On("visit_open", s.openVisit),
		rpc.On("volume_attach", s.attach),
		rpc.On("volume_release", s.release),
		rpc.On("volume_checkpoint", s.checkpoint),
		rpc.On("volume_restore", s.restore),
		rpc.On("volume_clone", s.clone),
		barrier.Answer(s.view),
	)
}

// configures checks that whoever asks may change environments, and that this instance knows how they stand.
func (s *Service) configures(who rpc.Caller) error {
	if !member.Role(who.Role).MayConfigure() {
		return problem.New(problem.Denied, "a %s may not change environments", who.Role)
	}
	return s.view.Current()
}

// place checks an environment's id from outside.
func place(who rpc.Caller, env id.Environment) (registry.Place, error) {
	if _, err := id.Parse[id.Environment](string(env)); err != nil {
		return registry.Place{}, problem.Wrap(err, problem.Invalid, "environment: %v", err)
	}
	return registry.Place{Tenant: who.Tenant, Environment: env}, nil
}

// there finds an environment that is there.
func (s *Service) there(who rpc.Caller, env id.Environment) (at registry.Place, e environment.Registered, seq uint64, err error) {
	if at, err = place(who, env); err != nil {
		return at, e, 0, err
	}
	e, seq, ok := s.registry.Environment(at)
	if !ok {
		return at, e, 0, problem.New(problem.NotFound, "there is no environment %s", id.Name(env))
	}
	return at, e, seq, nil
}

// say appends the next state of an environment or a volume after the one that was looked at, and returns when this
// instance has heard it. Of two who write at once one wins, and the other is told to look again.
func (s *Service) say(ctx context.Context, d eventlog.Draft, after uint64) (uint64, error) {
	seq, err := s.deps.Log.AppendAfter(ctx, d, after)
	if problem.CodeOf(err) == problem.Conflict {
		return 0, problem.Wrap(err, problem.Conflict, "somebody else changed it at the same moment; look at it again")
	}
	if err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	return seq, s.view.Wait(wait, seq)
}

func (s *Service) sayEnvironment(ctx context.Context, who rpc.Caller, e environment.Registered, after uint64) (uint64, error) {
	return s.say(ctx, eventlog.Draft{Event: e, Tenant: who.Tenant, Key: string(e.Environment), Actor: who.Actor}, after)
}

func (s *Service) define(ctx context.Context, who rpc.Caller, q ask.DefineEnvironment) (ask.Sequence, error) {
	if err := s.configures(who); err != nil {
		return ask.Sequence{}, err
	}
	at, err := place(who, q.Environment)
	if err != nil {
		return ask.Sequence{}, err
	}
	if !q.Driver.Valid() {
		return ask.Sequence{}, problem.New(problem.Invalid, "driver %.40q is not host or docker", q.Driver)
	}
	e, seq := s.registry.Environments.Version(who.Tenant, string(q.Environment))
	there := seq > 0 && !e.Removed
	switch {
	case there && e.Driver == q.Driver:
		return ask.Sequence{Seq: seq}, nil
	case there && e.Connector != nil:
		return ask.Sequence{}, problem.New(problem.Conflict, "a machine is connected as environment %s with driver %s; remove the environment to make it anew", id.Name(at.Environment), e.Driver)
	case !there && len(s.registry.Environments.All(who.Tenant)) >= maxEnvironments:
		return ask.Sequence{}, problem.New(problem.Conflict, "%d environments are the most that a tenant may have", maxEnvironments)
	}
	seq, err = s.sayEnvironment(ctx, who, environment.Registered{Environment: q.Environment, Driver: q.Driver}, seq)
	return ask.Sequence{Seq: seq}, err
}

// list answers from what this instance has heard: a machine that hangs makes nobody wait.
func (s *Service) list(_ context.Context, who rpc.Caller, _ ask.ListEnvironments) (ask.Environments, error) {
	out := ask.Environments{Environments: []ask.Environment{}}
	for _, e := range s.registry.Environments.All(who.Tenant) {
		if e.Removed {
			continue
		}
		at := registry.Place{Tenant: who.Tenant, Environment: e.Environment}
		state, seen := s.stateOf(at, e)
		one := ask.Environment{Environment: e.Environment, Driver: e.Driver, State: state, Draining: e.Draining, Seen: seen.at, Fault: seen.Fault, Execs: seen.Execs, Volumes: s.registry.VolumesOf(at)}
		if e.Connector != nil {
			one.EnrolledAt = e.Connector.At
		}
		if c, ok := s.registry.Connectors.Get(who.Tenant, string(e.Environment)); ok && e.Connector != nil {
			one.Instance, one.Version, one.Manifest = c.Instance, c.Version, &c.Manifest
		}
		out.Environments = append(out.Environments, one)
	}
	return out, nil
}

// remove ends every attachment, and then the environment: its connector is let onto the bus no more, and what it still
// says until its pass lapses is of an environment that is not there.
func (s *Service) remove(ctx context.Context, who rpc.Caller, q ask.RemoveEnvironment) (ask.InForce, error) {
	if err := s.configures(who); err != nil {
		return ask.InForce{}, err
	}
	at, e, seq, err := s.there(who, q.Environment)
	if err != nil {
		return ask.InForce{}, err
	}
	for _, v := range s.registry.VolumesOf(at) {
		if v.Attached == nil {
			continue
		}
		if _, err := s.release(ctx, who, ask.Release{Environment: q.Environment, Volume: v.Name, Revoke: true, Reason: q.Reason}); err != nil {
			return ask.InForce{}, err
		}
	}
	e.Removed, e.Connector, e.Enrolment = true, nil, nil
	if seq, err = s.sayEnvironment(ctx, who, e, seq); err != nil {
		return ask.InForce{}, err
	}
	return barrier.Wait(ctx, s.deps.Conn, who, seq)
}

// drain lets nothing be attached any more, or again: who holds a volume keeps it, so that the machine can be given time to
// become free.
func (s *Service) drain(ctx context.Context, who rpc.Caller, q ask.DrainEnvironment) (ask.Sequence, error) {
	if err := s.configures(who); err != nil {
		return ask.Sequence{}, err
	}
	_, e, seq, err := s.there(who, q.Environment)
	if err != nil || e.Draining == !q.Off {
		return ask.Sequence{Seq: seq}, err
	}
	e.Draining = !q.Off
	seq, err = s.sayEnvironment(ctx, who, e, seq)
	return ask.Sequence{Seq: seq}, err
}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *Service) createEnrolment(ctx context.Context, who rpc.Caller, q ask.CreateEnrolment) (ask.Sequence, error) {
	if err := s.configures(who); err != nil {
		return ask.Sequence{}, err
	}
	_, e, seq, err := s.there(who, q.Environment)
	if err != nil {
		return ask.Sequence{}, err
	}
	switch life := q.ExpiresAt.Sub(s.now()); {
	case !hexDigest.MatchString(q.Digest) || life <= 0 || life > maxEnrolment:
		return ask.Sequence{}, problem.New(problem.Invalid, "an enrolment has a token's SHA-256, and at most %s", maxEnrolment)
	case e.Connector != nil && !q.Replace:
		return ask.Sequence{}, problem.New(problem.Conflict, "a machine is enrolled as environment %s already; --replace lets another take its place", id.Name(q.Environment))
	}
	e.Enrolment = &environment.Enrolment{Digest: q.Digest, ExpiresAt: q.ExpiresAt.UTC()}
	seq, err = s.sayEnvironment(ctx, who, e, seq)
	return ask.Sequence{Seq: seq}, err
}

// enrol takes a token, once: of two who come with it, the append of one fails. Whoever holds no token learns nothing of
// what environments there are. A crash after the append and before the answer costs the token: the person makes another.
func (s *Service) enrol(ctx context.Context, who rpc.Caller, q ask.EnrolConnector) (connector.Identity, error) {
	refused := problem.New(problem.Unauthenticated, "the token is not valid, was used before, or is over; make another with execwarden env token")
	if err := s.view.Current(); err != nil {
		return connector.Identity{}, err
	}
	at, err := place(who, q.Environment)
	if err != nil {
		return connector.Identity{}, refused
	}
	key, err := nkeys.FromPublicKey(q.Enrol.NKey)
	if err != nil || !nkeys.IsValidPublicUserKey(q.Enrol.NKey) || key.Verify(connector.EnrolText(q.Enrol.Token, q.Enrol.NKey), q.Enrol.Proof) != nil {
		return connector.Identity{}, problem.New(problem.Unauthenticated, "the NKey is not proven")
	}
	e, seq, ok := s.registry.Environment(at)
	sum := sha256.Sum256([]byte(q.Enrol.Token))
	digest := hex.EncodeToString(sum[:])
	switch {
	case ok && e.Enrolment == nil && e.Connector != nil && e.Connector.NKey == q.Enrol.NKey && e.Connector.Token == digest:
		return s.identity(at, e), nil // the answer to the first attempt was lost
	case !ok || e.Enrolment == nil || e.Enrolment.Digest != digest || !s.now().Before(e.Enrolment.ExpiresAt):
		return connector.Identity{}, refused
	}
	if _, taken := s.registry.ByKey(q.Enrol.NKey); taken {
		return connector.Identity{}, problem.New(problem.Conflict, "this NKey is another environment's; a machine has one per environment")
	}
	e.Enrolment, e.Connector = nil, &environment.Enrolled{NKey: q.Enrol.NKey, Token: digest, At: s.now().UTC()}
	if _, err := s.sayEnvironment(ctx, rpc.Caller{Tenant: at.Tenant, Actor: "connector:" + q.Enrol.NKey}, e, seq); err != nil {
		return connector.Identity{}, err
	}
	return s.identity(at, e), nil
}

func (s *Service) identity(at registry.Place, e environment.Registered) connector.Identity {
	return connector.Identity{Tenant: at.Tenant, Environment: at.Environment, Driver: e.Driver, Root: s.deps.Root}
}

// attach leases a volume. It has one writer: whoever's append comes first.
func (s *Service) attach(ctx context.Context, who rpc.Caller, q ask.Attach) (volume.Defined, error) {
	if err := s.configures(who); err != nil {
		return volume.Defined{}, err
	}
	at, e, _, err := s.there(who, q.Environment)
	if err != nil {
		return volume.Defined{}, err
	}
	if q.Volume == "" {
		q.Volume = mainVolume
	}
	switch {
	case !id.ValidName(q.Volume):
		return volume.Defined{}, problem.New(problem.Invalid, "volume %.60q: use 1 to %d of a-z, 0-9 and '-'", q.Volume, id.MaxNameLength)
	case !q.Holder.One() || !validHolder(q.Holder):
		return volume.Defined{}, problem.New(problem.Invalid, "an attachment is for one run, one session or one agent")
	case e.Connector == nil:
		return volume.Defined{}, problem.New(problem.Conflict, "no machine is enrolled as environment %s yet; execwarden env token %s", id.Name(q.Environment), id.Name(q.Environment))
	}
	key := registry.VolumeID(at, q.Volume)
	v, seq := s.registry.Volumes.Version(at.Tenant, string(key))
	switch {
	case v.Attached != nil && v.Attached.Holder == q.Holder:
		return v, nil
	case e.Draining:
		return volume.Defined{}, problem.New(problem.Conflict, "environment %s is drained: nothing is attached to it any more; execwarden env drain %s --off", id.Name(q.Environment), id.Name(q.Environment))
	case v.Attached != nil:
		return volume.Defined{}, problem.New(problem.Conflict, "volume %s of environment %s is attached to %s; release it first", q.Volume, id.Name(q.Environment), holderName(v.Attached.Holder))
	case seq == 0 && len(s.registry.VolumesOf(at)) >= maxVolumes:
		return volume.Defined{}, problem.New(problem.Conflict, "%d volumes are the most that an environment may have", maxVolumes)
	}
	v.Volume, v.Environment, v.Name, v.Removed = key, at.Environment, q.Volume, false
	v.Epoch++
	v.Attached = &volume.Attachment{Attachment: id.New[id.Attachment](), Holder: q.Holder, Since: s.now().UTC()}
	if seq, err = s.sayVolume(ctx, who, v, seq); err != nil {
		return volume.Defined{}, err
	}
	// A broker that has not heard of it would admit calls for no machine.
	if _, err := barrier.Wait(ctx, s.deps.Conn, who, seq); err != nil {
		s.log.Warn("an attachment is not known everywhere yet", "volume", v.Volume, "err", err)
	}
	// A crash here leaves the machine to hear of the lease with the next renewal; so does one that is not there now.
	if err := s.renew(ctx, at); err != nil {
		s.log.Info("the machine hears of its attachment later", "environment", at.Environment, "err", err)
	}
	return v, nil
}

func validHolder(h volume.Holder) bool {
	_, errAgent := id.Parse[id.Agent](string(h.Agent))
	_, errSession := id.Parse[id.Session](string(h.Session))
	_, errRun := id.Parse[id.Run](string(h.Run))
	return (h.Agent == "" || errAgent == nil) && (h.Session == "" || errSession == nil) && (h.Run == "" || errRun == nil)
}

func holderName(h volume.Holder) string { return string(h.Agent) + string(h.Session) + string(h.Run) }

func (s *Service) sayVolume(ctx context.Context, who rpc.Caller, v volume.Defined, after uint64) (uint64, error) {
	return s.say(ctx, eventlog.Draft{Event: v, Tenant: who.Tenant, Key: string(v.Volume), Actor: who.Actor}, after)
}

// Grace of an attachment's end: the time that what runs is given to end by itself.
const (
	releaseGrace = 30 * time.Second
	revokeGrace  = 2 * time.Second
)

// release ends an attachment, and returns when the machine has ended what ran.
func (s *Service) release(ctx context.Context, who rpc.Caller, q ask.Release) (ask.Released, error) {
	began := s.now()
	at, v, seq, err := s.volumeThere(who, q.Environment, q.Volume)
	switch {
	case err != nil:
		return ask.Released{}, err
	case len(q.Reason) > maxReason:
		return ask.Released{}, problem.New(problem.Invalid, "a reason has at most %d bytes", maxReason)
	case v.Attached == nil:
		return ask.Released{Volume: v, Took: s.now().Sub(began)}, nil
	}
	how, grace := volume.Released, releaseGrace
	if q.Revoke {
		how, grace = volume.Revoked, revokeGrace
	}
	ended := *v.Attached
	v.Attached, v.Ended = nil, &volume.End{Attachment: ended.Attachment, How: how, At: s.now().UTC(), Reason: q.Reason, Survivors: notCounted}
	if seq, err = s.sayVolume(ctx, who, v, seq); err != nil {
		return ask.Released{}, err
	}
	// From here on nothing is ordered under it. A crash now leaves what runs to the end of its lease.
	answer, _, err := askMachine[connector.Ended](ctx, s, at, "end", connector.End{Attachment: ended.Attachment, Epoch: v.Epoch, Grace: grace, Revoked: q.Revoke}, grace+askWithin)
	if err != nil {
		s.log.Warn("the machine did not say that it ended an attachment; its lease lapses", "environment", at.Environment, "err", err)
		return ask.Released{Volume: v, Survivors: notCounted, Took: s.now().Sub(began)}, nil
	}
	v.Ended.Survivors = answer.Survivors
	if _, err = s.sayVolume(ctx, who, v, seq); err != nil {
		s.log.Warn("the count of survivors is not recorded", "volume", v.Volume, "err", err) // somebody attached it again meanwhile
	}
	return ask.Released{Volume: v, Killed: answer.Killed, Survivors: answer.Survivors, Took: s.now().Sub(began)}, nil
}
