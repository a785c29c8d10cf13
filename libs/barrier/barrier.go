// Package barrier tells when a change of the control stream is in force: when every instance that acts on it has
// heard it, or has not been current for so long that it admits and executes nothing.
package barrier

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

// services are those that act on grants.
var services = []schemas.Service{schemas.Toolbroker, schemas.Runtime, schemas.Environments}

// fencedAfter is how long after a change is stored every instance that has not heard it has stopped to act: its last
// proof of being current is from before the change by then.
const fencedAfter = eventlog.StaleAfter + 500*time.Millisecond

// Answer answers for one instance, as soon as its view has everything up to the sequence that is asked for.
func Answer(v *eventlog.View) rpc.Method {
	return rpc.On(schemas.Barrier, func(ctx context.Context, _ rpc.Caller, q ask.Sequence) (ask.Sequence, error) {
		if err := v.Wait(ctx, q.Seq); err != nil {
			return ask.Sequence{}, err
		}
		return ask.Sequence{Seq: v.Seq()}, nil
	})
}

// Wait is Among, for the services that act on grants.
func Wait(ctx context.Context, conn *bus.Conn, who rpc.Caller, seq uint64) (ask.InForce, error) {
	return Among(ctx, conn, who, seq, services...)
}

// Among waits until what is stored at a sequence is in force in some services, and says how many instances have heard it
// and which have not, but act no more until they have. It takes at most 3 s. An error, of code pending, means that nobody
// can tell.
func Among(ctx context.Context, conn *bus.Conn, who rpc.Caller, seq uint64, services ...schemas.Service) (ask.InForce, error) {
	began := time.Now()
	pending := func(err error) error {
		return problem.Wrap(err, problem.Pending, "the change is recorded, and it cannot be told yet whether every instance has heard it; one that is not current for %s acts no more", eventlog.StaleAfter)
	}
	roster, err := bus.AskRoster(ctx, conn)
	if err != nil {
		return ask.InForce{}, pending(err)
	}
	missing := make([][]string, len(services))
	fence, cancel := context.WithTimeout(ctx, fencedAfter)
	defer cancel()
	var group errgroup.Group
	for i, s := range services {
		missing[i] = slices.Clone(roster.Lives[s])
		if len(missing[i]) == 0 {
			continue // nobody is there; whoever starts reads the stream first
		}
		group.Go(func() error {
			err := rpc.AskEach(fence, conn, s, schemas.Barrier, who, ask.Sequence{Seq: seq}, func(life string, _ ask.Sequence, err error) bool {
				if err == nil {
					missing[i] = slices.DeleteFunc(missing[i], func(m string) bool { return m == life })
				}
				return len(missing[i]) == 0
			})
			if err != nil && ctx.Err() == nil && problem.CodeOf(err) != problem.BusDenied {
				<-fence.Done() // nobody is left who could answer: those who are missing are fenced by then
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return ask.InForce{}, pending(errors.Join(err, ctx.Err()))
	}
	done := ask.InForce{Seq: seq, ConfirmedMS: float64(time.Since(began).Microseconds()) / 1000}
	for i, s := range services {
		done.Heard += len(roster.Lives[s]) - len(missing[i])
		for _, life := range missing[i] {
			done.Fenced = append(done.Fenced, string(s)+"/"+life)
		}
	}
	return done, nil
}
