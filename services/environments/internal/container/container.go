package container

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// What a container is known by.
const (
	labelHome       = "com.execwarden.home"      // of the connector, for whoever looks
	labelConnector  = "com.execwarden.connector" // whose it is
	labelAttachment = "com.execwarden.attachment"
)

// Where things are in a container. No command sees them.
const (
	Hidden  = "/.execwarden"
	Dir     = Hidden + "/attachment" // the attachment's
	program = Hidden + "/shim"
)

// Spec is one attachment's container.
type Spec struct {
	Attachment id.Attachment
	Dir        string // the attachment's, on the machine
	Config     string // the shim's configuration: a file's name in Dir
	Shim       string // the program, on the machine
	Volume     string // at the same path inside
}

func nameOf(a id.Attachment) string { return "execwarden-" + string(a) }

// Start makes a container and starts it. One that runs is left as it is, and found is answered; one that has ended, or was
// never started, is removed before. When an error is answered, nothing was started.
func (e *Engine) Start(ctx context.Context, s Spec) (found bool, err error) {
	c, err := e.find(ctx, s.Attachment)
	switch {
	case err != nil:
		return false, err
	case c != nil && c.State.Running:
		return true, nil
	case c != nil:
		if err := e.remove(ctx, c.ID); err != nil {
			return false, err
		}
	}
	name := nameOf(s.Attachment)
	_, err = e.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: e.config(s), HostConfig: e.hostConfig(s)})
	if err == nil {
		// A crash here leaves one that was never started.
		if _, err = e.api.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
			_, _ = e.End(ctx, s.Attachment) // else the next start, or sweep, does
		}
	}
	if err != nil {
		return false, problem.Wrap(err, problem.Unavailable, "the attachment's container cannot be started: %.400s", plain(err))
	}
	return false, nil
}

// find gives an attachment's container, and nil when there is none. Problems: conflict when it is another connector's.
func (e *Engine) find(ctx context.Context, a id.Attachment) (*container.InspectResponse, error) {
	c, err := e.api.ContainerInspect(ctx, nameOf(a), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, problem.Wrap(err, problem.Unavailable, "the attachment's container cannot be looked at: %v", plain(err))
	case c.Container.Config == nil || c.Container.State == nil || c.Container.Config.Labels[labelConnector] != e.who.Name:
		return nil, problem.New(problem.Conflict, "container %s is there, and is not this connector's", nameOf(a))
	}
	return &c.Container, nil
}

func (e *Engine) config(s Spec) *container.Config {
	return &container.Config{
		Image: e.policy.Docker.Image, Entrypoint: []string{program, "serve", Dir + "/" + s.Config}, User: e.user(), WorkingDir: "/",
		Labels:      map[string]string{labelHome: e.who.Home, labelConnector: e.who.Name, labelAttachment: string(s.Attachment)},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // it would begin processes in there
	}
}

// user is whom the shim runs as: root in the container where the connector is root, so that commands, which have another
// user, can neither read nor end it; else the connector's own, as on the machine.
func (e *Engine) user() string {
	if os.Geteuid() == 0 {
		return "0:0"
	}
	return strconv.Itoa(os.Geteuid()) + ":" + strconv.Itoa(os.Getegid())
}

// capabilities are what a shim that is root needs: to give commands their user and group, and to end what is that user's.
// Commands have none of them.
var capabilities = []string{"SETUID", "SETGID", "KILL"}

func (e *Engine) hostConfig(s Spec) *container.HostConfig {
	d := e.policy.Docker
	no := false
	h := &container.HostConfig{
		NetworkMode: "none", RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled}, IpcMode: container.IPCModePrivate, Init: &no,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: d.ReadOnly, Runtime: d.Runtime,
		LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
		Resources: container.Resources{Memory: d.MemoryBytes(), MemorySwap: d.MemoryBytes(), NanoCPUs: int64(d.CPUs * 1e9), PidsLimit: &d.PIDs},
	}
	if d.Network != localpolicy.Off && d.Network != localpolicy.Targets {
		h.NetworkMode = container.NetworkMode(d.Network)
	}
	if os.Geteuid() == 0 {
		h.CapAdd = capabilities
	}
	if d.ReadOnly {
		h.Tmpfs = map[string]string{"/tmp": "mode=1777,nosuid,nodev"}
	}
	bind := func(from, to string, readOnly bool) {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: from, Target: to, ReadOnly: readOnly, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}})
	}
	bind(s.Shim, program, true)
	bind(s.Dir, Dir, false)
	bind(s.Volume, s.Volume, false)
	for _, r := range e.policy.Roots {
		bind(r.Path, r.Path, !r.Write)
	}
	return h
}

// Ended says of a container that it runs no more, and why.
func (e *Engine) Ended(ctx context.Context, a id.Attachment) (why string, ended bool) {
	switch c, err := e.find(ctx, a); {
	case err != nil || c != nil && c.State.Running:
		return "", false
	case c == nil:
		return "it was removed", true
	default:
		if why = e.said(ctx, c.ID); why == "" {
			why = fmt.Sprintf("it ended with code %d %s", c.State.ExitCode, c.State.Error)
		}
		return why, true
	}
}

// End kills a container and removes it, if it is there; ran says that it was still running. When it is gone nothing of it
// is left: the kernel ends every process of its PID namespace with the first one.
func (e *Engine) End(ctx context.Context, a id.Attachment) (ran bool, err error) {
	c, err := e.find(ctx, a)
	if err != nil || c == nil {
		return false, err
	}
	return c.State.Running, e.remove(ctx, c.ID)
}

// endWithin is how long the engine may take to end a container.
const endWithin = 20 * time.Second

// remove removes a container with the anonymous volumes that its image declares.
func (e *Engine) remove(ctx context.Context, container string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	_, err := e.api.ContainerRemove(ctx, container, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return problem.Wrap(err, problem.Unavailable, "the attachment's container cannot be removed: %v", plain(err))
	}
	return nil
}

// Sweep removes the containers of this connector whose attachments nobody wants, and gives those.
func (e *Engine) Sweep(ctx context.Context, wanted func(id.Attachment) bool) (removed []id.Attachment, err error) {
	list, err := e.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelConnector+"="+e.who.Name)})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the engine's containers cannot be listed: %v", plain(err))
	}
	for _, c := range list.Items {
		a := id.Attachment(c.Labels[labelAttachment])
		if wanted(a) {
			continue
		}
		if err := e.remove(ctx, c.ID); err != nil {
			return removed, err
		}
		removed = append(removed, a)
	}
	return removed, nil
}
