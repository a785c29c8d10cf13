package callpath

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// revocations takes grants away from under calls that hang, one grant after the other.
func revocations(ctx context.Context, h *house, t *tenancy, cfg Config) (RevokeRow, error) {
	row := RevokeRow{Setting: h.setting, InFlight: cfg.InFlight, Revokes: cfg.Revokes}
	agents, callers := make([]given, cfg.Revokes), make([]*caller, cfg.InFlight)
	for i := range agents {
		_, grants, err := t.agent(ctx, hangTool)
		if err != nil {
			return row, err
		}
		agents[i] = grants[0]
	}
	for i := range callers {
		var err error
		if callers[i], err = newCaller(t.agentloop, "", i); err != nil {
			return row, err
		}
		defer func() { _ = callers[i].hints.Unsubscribe() }() // a connection that is gone has no subscription
	}
	var took []time.Duration
	for _, g := range agents {
		d, err := revocation(ctx, h, t, g, callers)
		if err != nil {
			return row, fmt.Errorf("revocation: %w", err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	row.P50, row.P99 = Micros(quantile(took, 0.50)), Micros(quantile(took, 0.99))
	return row, nil
}

// revocation takes one grant away, and says how long the last of its calls went on.
func revocation(ctx context.Context, h *house, t *tenancy, g given, callers []*caller) (time.Duration, error) {
	var waiting errgroup.Group
	ended := make([]time.Time, len(callers))
	for i, c := range callers {
		c.agent = g.agent
		p, err := c.ask(ctx, hangTool)
		if err != nil {
			return 0, err
		}
		waiting.Go(func() error {
			outcome, err := c.await(ctx, p)
			ended[i] = time.Now()
			if err == nil && !cancelled(outcome) {
				err = fmt.Errorf("the call in flight ended as %s: %+v", outcome.Kind(), outcome)
			}
			return err
		})
	}
	err := until(ctx, "every call hangs at the provider", func() bool { return h.provider.hanging.Load() == int64(len(callers)) })
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := t.revoke(ctx, g); err != nil {
		return 0, err
	}
	if err := waiting.Wait(); err != nil {
		return 0, err
	}
	last := slices.MaxFunc(ended, time.Time.Compare)
	h.provider.release()
	return last.Sub(began), until(ctx, "the provider is free", func() bool { return h.provider.hanging.Load() == 0 })
}
