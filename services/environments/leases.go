package environments

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// renewing is how many machines are asked at once; one that hangs keeps only its own place, for askWithin.
const renewing = 32

// keepLeases renews what is attached to machines that are there, until ctx ends. Every instance does: to hear of a lease twice
// is to hear of it once.
func (s *Service) keepLeases(ctx context.Context) error {
	ticker := time.NewTicker(connector.Life(s.cfg.LeaseLife).Renew())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if s.view.Current() != nil {
			continue // what is attached may have ended meanwhile; leases lapse by themselves
		}
		group := errgroup.Group{}
		group.SetLimit(renewing)
		for _, tenant := range s.registry.Environments.Tenants() {
			for _, e := range s.registry.Environments.All(tenant) {
				at := registry.Place{Tenant: tenant, Environment: e.Environment}
				group.Go(func() error {
					s.tend(ctx, at)
					return nil
				})
			}
		}
		_ = group.Wait() // tend gives no error
	}
}

// tend renews the leases of one environment, or ends them when its machine is gone for long.
func (s *Service) tend(ctx context.Context, at registry.Place) {
	e, _, there := s.registry.Environment(at)
	if !there {
		return
	}
	state, _ := s.stateOf(at, e)
	s.online.WithLabelValues(string(at.Tenant), id.Name(at.Environment)).Set(onlineValue(state))
	if s.presence.silent(at, s.now()) > s.cfg.LostAfter {
		for _, v := range s.registry.VolumesOf(at) {
			if v.Attached != nil && s.now().Sub(v.Attached.Since) > s.cfg.LostAfter {
				s.endLost(ctx, at, v)
			}
		}
		return
	}
	if err := s.renew(ctx, at); err != nil {
		s.log.Debug("leases not renewed", "environment", at.Environment, "err", err)
	}
}

// leasesOf is what a machine is told: the time, the keys, and what is attached to it.
func (s *Service) leasesOf(at registry.Place) connector.Leases {
	return connector.Leases{Now: s.now().UTC(), Keys: s.registry.Keys(), Leases: s.registry.Leases(at), Life: connector.Life(s.cfg.LeaseLife)}
}

// renew tells a machine what is attached to it. What it is not told of lapses there.
func (s *Service) renew(ctx context.Context, at registry.Place) error {
	answer, _, err := askMachine[connector.Leased](ctx, s, at, "lease", s.leasesOf(at), askWithin)
	if err != nil {
		return err
	}
	for attachment, fault := range answer.Faults {
		s.log.Warn("a volume is not ready on its machine", "environment", at.Environment, "attachment", attachment, "fault", clip(fault))
	}
	return nil
}

// endLost ends the attachment of a machine that did not come back. Another instance may have done so: then the sequence
// is another, and nothing is said.
func (s *Service) endLost(ctx context.Context, at registry.Place, v volume.Defined) {
	now, seq := s.registry.Volumes.Version(at.Tenant, string(v.Volume))
	if now.Attached == nil || now.Attached.Attachment != v.Attached.Attachment {
		return
	}
	now.Ended = &volume.End{Attachment: now.Attached.Attachment, How: volume.Lost, At: s.now().UTC(), Survivors: notCounted}
	now.Attached = nil
	if _, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: now, Tenant: at.Tenant, Key: string(now.Volume), Actor: actor}, seq); err != nil {
		s.log.Warn("a lost attachment is not ended yet", "volume", now.Volume, "err", err)
	}
}

// notCounted stands for the survivors of an end that the machine was not there to count.
const notCounted = -1
