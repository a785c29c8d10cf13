package host

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/container"
)

// Bounds of a container's output that is shown, of each stream, in bytes.
const (
	containerShown = 24 << 10
	containerMost  = 256 << 10
	maxContainEnv  = 64
)

// engine reaches the machine's engine for containers beside commands, the first time that it is needed. nil: the policy has none.
func (h *Host) engine(ctx context.Context) (*container.Engine, error) {
	if len(h.cfg.Policy.Containers.Images) == 0 {
		return nil, nil
	}
	h.reaching.Lock()
	defer h.reaching.Unlock()
	if h.beside == nil {
		e, err := container.OpenBeside(ctx, container.Owner{Name: h.cfg.Name, Home: h.cfg.Home}, h.cfg.Policy)
		if err != nil {
			return nil, err
		}
		h.beside = e
	}
	return h.beside, nil
}

// contain carries out a tool of containers. One is its call's: the same order never begins another.
func (h *Host) contain(ctx context.Context, p *place, o connector.Order, name string) (any, error) {
	a := p.lease.Attachment
	e, err := h.engine(ctx)
	if err == nil && e == nil {
		err = h.cfg.Policy.MayContain("")
	}
	if err != nil {
		return nil, err
	}
	switch name {
	case "containers_run":
		return call(o.Args, func(args machine.ContainersRunArgs) (any, error) { return h.runContainer(ctx, p, e, o.Call, args) })
	case "containers_list":
		return call(o.Args, func(struct{}) (any, error) {
			list, err := e.ListBeside(ctx, a)
			out := struct {
				Containers []machine.Container `json:"containers"`
			}{[]machine.Container{}}
			for _, c := range list {
				if len(c.Names) == 0 {
					continue
				}
				one, err := e.Look(ctx, a, strings.TrimPrefix(c.Names[0], "/"), 0)
				if err == nil { // else it ended meanwhile
					out.Containers = append(out.Containers, one)
				}
			}
			return out, err
		})
	case "containers_logs":
		return call(o.Args, func(args machine.ContainersLogsArgs) (any, error) {
			if args.Max == 0 {
				args.Max = 2 * containerShown
			}
			if args.Max < 1 || args.Max > containerMost {
				return nil, problem.New(problem.Invalid, "max_bytes is outside 1 to %d", containerMost)
			}
			return e.Look(ctx, a, args.Container, args.Max)
		})
	case "containers_stop":
		return call(o.Args, func(args machine.ContainersStopArgs) (any, error) {
			out, err := e.Look(ctx, a, args.Container, containerShown)
			if err != nil {
				return nil, err
			}
			return out, e.Stop(ctx, a, args.Container)
		})
	}
	return nil, problem.New(problem.NotFound, "this machine has no tool %.60q", name)
}

// beside makes a container's description of what a model made, held against the policy.
func (h *Host) besideOf(p *place, c id.Call, args machine.ContainersRunArgs) (container.Beside, error) {
	b := container.Beside{Attachment: p.lease.Attachment, Call: c, Image: args.Image, Argv: args.Argv, Cwd: args.Cwd, From: p.volume, Volume: args.Volume, ReadOnly: args.ReadOnly}
	if err := h.cfg.Policy.MayContain(args.Image); err != nil {
		return b, err
	}
	timeout := time.Duration(args.Timeout) * time.Second
	size := 0
	for _, word := range args.Argv {
		size += len(word)
	}
	switch {
	case timeout < 0 || timeout > maxTimeout:
		return b, problem.New(problem.Invalid, "timeout_s is outside 1 to %d", int(maxTimeout.Seconds()))
	case len(args.Argv) > 256 || size > 64<<10 || len(args.Env) > maxContainEnv:
		return b, problem.New(problem.TooLarge, "argv or env is too large")
	case args.Volume != "" && (!path.IsAbs(args.Volume) || path.Clean(args.Volume) != args.Volume || args.Volume == "/"):
		return b, problem.New(problem.Invalid, "volume %.100q is no absolute path below / in the container", args.Volume)
	case args.Cwd != "" && (!path.IsAbs(args.Cwd) || len(args.Cwd) > 1000):
		return b, problem.New(problem.Invalid, "cwd %.100q is no absolute path in the container", args.Cwd)
	case args.Volume == "" && args.ReadOnly:
		return b, problem.New(problem.Invalid, "read_only is of the volume, and volume says where that is")
	case timeout == 0:
		timeout = defaultTimeout
	}
	for name, value := range args.Env {
		if !validName(name) || len(value) > 8<<10 {
			return b, problem.New(problem.Invalid, "%.60q is no name of a variable, or its value is too large", name)
		}
		if err := h.cfg.Policy.MaySet(name); err != nil {
			return b, err
		}
		b.Env = append(b.Env, name+"="+value)
	}
	slices.Sort(b.Env)
	b.UID, b.GID = container.Whose(h.cfg.Policy.Commands())
	b.Until = time.Now().Add(timeout)
	return b, nil
}

func (h *Host) runContainer(ctx context.Context, p *place, e *container.Engine, c id.Call, args machine.ContainersRunArgs) (any, error) {
	b, err := h.besideOf(p, c, args)
	if err != nil {
		return nil, err
	}
	if b.Volume != "" && !b.ReadOnly {
		if err := h.mayGrow(ctx, p); err != nil {
			return nil, err
		}
	}
	h.containing.Lock() // two that begin at once are counted
	there, err := e.ListBeside(ctx, b.Attachment)
	if err == nil {
		err = h.cfg.Policy.MayContainMore(len(there))
	}
	name := ""
	if err == nil {
		name, err = e.Run(ctx, b)
	}
	h.containing.Unlock()
	if err != nil {
		return nil, err
	}
	if args.Background {
		return e.Look(ctx, b.Attachment, name, 0)
	}
	wait, cancel := context.WithDeadline(ctx, b.Until)
	defer cancel()
	ended := e.Wait(wait, name)
	out, err := e.Look(ctx, b.Attachment, name, containerShown)
	if err != nil {
		return nil, err // somebody ended it
	}
	if !ended && out.State == "running" {
		out.State, out.Reason = "exited", "timeout"
	}
	return out, e.Stop(ctx, b.Attachment, name)
}

// endContainers ends those beside an attachment.
func (h *Host) endContainers(ctx context.Context, a id.Attachment) int {
	e, err := h.engine(ctx)
	ran := 0
	if err == nil && e != nil {
		ran, err = e.EndBeside(ctx, a, func(id.Attachment, time.Time) bool { return true })
	}
	if err != nil {
		h.cfg.Log.Warn("an attachment's containers are not ended yet; it is tried again", "attachment", a, "err", err)
	}
	return ran
}

// endOverdue ends containers whose time is over, or whose attachment is.
func (h *Host) endOverdue(ctx context.Context) {
	e, err := h.engine(ctx)
	if err == nil && e != nil {
		_, err = e.EndBeside(ctx, "", func(a id.Attachment, until time.Time) bool {
			_, gone := os.Stat(filepath.Join(h.cfg.Home, "attachments", string(a), leaseFile))
			return gone != nil || time.Now().After(until)
		})
	}
	if err != nil {
		h.cfg.Log.Warn("containers are not looked after", "err", err)
	}
}
