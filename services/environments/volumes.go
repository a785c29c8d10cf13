package environments

import (
	"context"
	"slices"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// copyWithin is how long a machine is waited for that copies a volume.
const copyWithin = connector.CopyLife + 5*time.Second

// volumeThere finds a volume that is there.
func (s *Service) volumeThere(who rpc.Caller, env id.Environment, name string) (at registry.Place, v volume.Defined, seq uint64, err error) {
	if err := s.configures(who); err != nil {
		return at, v, 0, err
	}
	if at, _, _, err = s.there(who, env); err != nil {
		return at, v, 0, err
	}
	if name == "" {
		name = mainVolume
	}
	v, seq = s.registry.Volumes.Version(at.Tenant, string(registry.VolumeID(at, name)))
	if seq == 0 || v.Removed {
		return at, v, 0, problem.New(problem.NotFound, "environment %s has no volume %.60q", id.Name(env), name)
	}
	return at, v, seq, nil
}

// checkpoint keeps what a volume holds, under a number that is taken before the machine is asked: two who ask at once have
// two, and a crash in between leaves a number that nothing is under.
func (s *Service) checkpoint(ctx context.Context, who rpc.Caller, q ask.CheckpointVolume) (volume.Defined, error) {
	at, v, seq, err := s.volumeThere(who, q.Environment, q.Volume)
	if err != nil {
		return volume.Defined{}, err
	}
	v.Generation++
	generation := v.Generation
	if _, err = s.sayVolume(ctx, who, v, seq); err != nil {
		return volume.Defined{}, err
	}
	made, _, err := askMachine[connector.Checkpointed](ctx, s, at, "checkpoint", connector.Checkpoint{Volume: v.Name, Generation: generation}, copyWithin)
	if err != nil {
		return volume.Defined{}, err
	}
	if !hexDigest.MatchString(made.Manifest) || made.Files < 0 || made.Bytes < 0 || made.Skipped < 0 {
		return volume.Defined{}, problem.New(problem.Unavailable, "the machine of environment %s does not answer as it should", id.Name(q.Environment))
	}
	// A crash here leaves a checkpoint on the machine that nobody knows of; it goes with the older ones.
	return s.amend(ctx, who, v, func(v *volume.Defined) {
		v.Checkpoints = append(v.Checkpoints, volume.Checkpoint{Generation: generation, Manifest: made.Manifest, Files: made.Files, Bytes: made.Bytes, Skipped: made.Skipped, At: s.now().UTC()})
		v.Checkpoints = slices.DeleteFunc(v.Checkpoints, func(c volume.Checkpoint) bool { return !slices.Contains(made.Kept, c.Generation) })
	})
}

// amendTries is how often a change is made anew on what somebody else said meanwhile.
const amendTries = 5

// amend records what the machine has done already, on whatever the volume's state is by now.
func (s *Service) amend(ctx context.Context, who rpc.Caller, v volume.Defined, change func(*volume.Defined)) (volume.Defined, error) {
	for try := 1; ; try++ {
		now, seq := s.registry.Volumes.Version(who.Tenant, string(v.Volume))
		now.Checkpoints = slices.Clone(now.Checkpoints)
		change(&now)
		_, err := s.sayVolume(ctx, who, now, seq)
		if err == nil || problem.CodeOf(err) != problem.Conflict || try == amendTries {
			return now, err
		}
	}
}

// restore brings a checkpoint back. Nobody may hold the volume: whoever did would have its files change under them.
func (s *Service) restore(ctx context.Context, who rpc.Caller, q ask.RestoreVolume) (volume.Defined, error) {
	at, v, _, err := s.volumeThere(who, q.Environment, q.Volume)
	if err != nil {
		return volume.Defined{}, err
	}
	i := slices.IndexFunc(v.Checkpoints, func(c volume.Checkpoint) bool { return c.Generation == q.Checkpoint })
	switch {
	case v.Attached != nil:
		return volume.Defined{}, problem.New(problem.Conflict, "volume %s is attached to %s; release it first", v.Name, holderName(v.Attached.Holder))
	case i < 0:
		return volume.Defined{}, problem.New(problem.NotFound, "volume %s has no checkpoint %d", v.Name, q.Checkpoint)
	}
	// Whoever attaches it at this moment waits on the machine until it is done.
	c := v.Checkpoints[i]
	if _, _, err := askMachine[connector.Copied](ctx, s, at, "restore", connector.Restore{Volume: v.Name, Generation: c.Generation, Manifest: c.Manifest}, copyWithin); err != nil {
		return volume.Defined{}, err
	}
	// A crash here leaves a volume that was brought back, and nobody who says so. To ask again is to do the same again.
	return s.amend(ctx, who, v, func(v *volume.Defined) { v.Restored = &volume.Restored{Generation: c.Generation, At: s.now().UTC()} })
}

// clone makes another volume that holds the same.
func (s *Service) clone(ctx context.Context, who rpc.Caller, q ask.CloneVolume) (volume.Defined, error) {
	at, v, _, err := s.volumeThere(who, q.Environment, q.Volume)
	if err != nil {
		return volume.Defined{}, err
	}
	key := registry.VolumeID(at, q.To)
	there, seq := s.registry.Volumes.Version(at.Tenant, string(key))
	switch {
	case !id.ValidName(q.To):
		return volume.Defined{}, problem.New(problem.Invalid, "volume %.60q: use 1 to %d of a-z, 0-9 and '-'", q.To, id.MaxNameLength)
	case seq > 0 && !there.Removed:
		return volume.Defined{}, problem.New(problem.Conflict, "environment %s has a volume %s already", id.Name(q.Environment), q.To)
	case len(s.registry.VolumesOf(at)) >= maxVolumes:
		return volume.Defined{}, problem.New(problem.Conflict, "%d volumes are the most that an environment may have", maxVolumes)
	}
	if _, _, err := askMachine[connector.Copied](ctx, s, at, "clone", connector.Clone{Volume: v.Name, To: q.To}, copyWithin); err != nil {
		return volume.Defined{}, err
	}
	// A crash here leaves a directory on the machine that is a volume once it is attached.
	made := volume.Defined{Volume: key, Environment: at.Environment, Name: q.To, Epoch: there.Epoch, Generation: there.Generation, From: v.Name}
	_, err = s.sayVolume(ctx, who, made, seq)
	return made, err
}
