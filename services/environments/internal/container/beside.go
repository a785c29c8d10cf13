package container

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// Labels of containers beside an attachment's commands, which calls begin.
const (
	labelCall  = "com.execwarden.call"
	labelUntil = "com.execwarden.until" // when it is ended, in Unix seconds
)

// OpenBeside reaches the engine for containers beside an attachment's commands. Problems: unavailable when it does not answer.
func OpenBeside(ctx context.Context, who Owner, policy *localpolicy.Policy) (*Engine, error) {
	return reach(ctx, who, policy)
}

// Beside is one such container.
type Beside struct {
	Attachment id.Attachment
	Call       id.Call
	Image      string
	Argv, Env  []string
	Cwd        string
	From       string // the volume, on the machine
	Volume     string // where it is in the container; empty: nowhere
	ReadOnly   bool
	UID, GID   int // whose the volume is
	Until      time.Time
}

func besideName(c id.Call) string { return "execwarden-" + string(c) }

// serviceRights are what images need that begin as root and become somebody else. They have nothing of the machine's then.
var serviceRights = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL", "NET_BIND_SERVICE"}

// Run makes a container and starts it. When an error is answered, nothing was started.
func (e *Engine) Run(ctx context.Context, b Beside) (name string, err error) {
	if _, err := e.image(ctx, b.Image); err != nil {
		return "", err
	}
	no, limits := false, e.policy.Containers
	h := &container.HostConfig{
		NetworkMode: "none", RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled}, IpcMode: container.IPCModePrivate, Init: &no,
		CapDrop: []string{"ALL"}, CapAdd: serviceRights, SecurityOpt: []string{"no-new-privileges"}, Runtime: e.policy.Docker.Runtime,
		LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "8m", "max-file": "1"}},
		Resources: container.Resources{Memory: limits.Bytes(), MemorySwap: limits.Bytes(), NanoCPUs: int64(limits.CPUs * 1e9), PidsLimit: &limits.PIDs},
	}
	if e.policy.Docker.Network != localpolicy.Off {
		h.NetworkMode = container.NetworkMode(e.policy.Docker.Network)
	}
	c := &container.Config{Image: b.Image, Cmd: b.Argv, Env: b.Env, WorkingDir: b.Cwd, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, Labels: map[string]string{
		labelHome: e.who.Home, labelConnector: e.who.Name, labelAttachment: string(b.Attachment), labelCall: string(b.Call), labelUntil: strconv.FormatInt(b.Until.Unix(), 10),
	}}
	if b.Volume != "" {
		// The whole volume: what is in it may be a link, to anywhere on the machine, by the time it would be bound. And as the user
		// whose files are in it, with no right: what is made there is as commands could make it.
		c.User, h.CapAdd = strconv.Itoa(b.UID)+":"+strconv.Itoa(b.GID), nil
		h.Mounts = []mount.Mount{{Type: mount.TypeBind, Source: b.From, Target: b.Volume, ReadOnly: b.ReadOnly, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}}}
	}
	name = besideName(b.Call)
	_, err = e.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: c, HostConfig: h})
	if err == nil {
		// A crash here leaves one that was never started; its end is its time's, or its attachment's.
		if _, err = e.api.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
			_ = e.remove(ctx, name) // else the same
		}
	}
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "the container cannot be started: %.400s", plain(err))
	}
	return name, nil
}

// Wait waits until a container has ended, and says whether it has when ctx does.
func (e *Engine) Wait(ctx context.Context, name string) bool {
	w := e.api.ContainerWait(ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-w.Result:
		return true
	case err := <-w.Error:
		return err != nil && ctx.Err() == nil // it is gone, or cannot be asked: what follows says which
	}
}

// Look says how a container of an attachment stands, with at most so much of its newest output. Problems: not_found.
func (e *Engine) Look(ctx context.Context, a id.Attachment, name string, most int) (out machine.Container, err error) {
	c, err := e.beside(ctx, a, name)
	if err != nil {
		return out, err
	}
	out = machine.Container{Container: name, Image: c.Config.Image, State: "running"}
	if !c.State.Running {
		code := c.State.ExitCode
		out.State, out.Reason, out.Code = "exited", "exited", &code
		if c.State.OOMKilled {
			out.Reason = "oom"
		}
	}
	if most == 0 {
		return out, nil
	}
	logs, err := e.api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return out, problem.Wrap(err, problem.Unavailable, "the container's output cannot be read: %v", plain(err))
	}
	defer logs.Close()
	stdout, stderr := tail{most: most}, tail{most: most}
	if _, err := stdcopy.StdCopy(&stdout, &stderr, io.LimitReader(logs, maxLogs)); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return out, problem.Wrap(err, problem.Unavailable, "the container's output cannot be read: %v", plain(err))
	}
	out.Stdout, out.Stderr, out.Clipped = stdout.text(), stderr.text(), stdout.clipped || stderr.clipped
	return out, nil
}

// maxLogs is more than the engine keeps of a container's output, in bytes.
const maxLogs = 32 << 20

// tail keeps the newest of what is written.
type tail struct {
	most    int
	kept    []byte
	clipped bool
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept, t.clipped = append([]byte{}, t.kept[over:]...), true
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(string(t.kept), "\uFFFD") }

// beside finds a container of an attachment, and no other of the machine's.
func (e *Engine) beside(ctx context.Context, a id.Attachment, name string) (*container.InspectResponse, error) {
	none := problem.New(problem.NotFound, "there is no container %.80q of this attachment", name)
	if c, ok := strings.CutPrefix(name, "execwarden-"); !ok {
		return nil, none
	} else if _, err := id.Parse[id.Call](c); err != nil {
		return nil, none
	}
	c, err := e.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil, none
	case err != nil:
		return nil, problem.Wrap(err, problem.Unavailable, "the container cannot be looked at: %v", plain(err))
	case c.Container.Config == nil || c.Container.State == nil || c.Container.Config.Labels[labelConnector] != e.who.Name || c.Container.Config.Labels[labelAttachment] != string(a):
		return nil, none
	}
	return &c.Container, nil
}

// Stop ends a container of an attachment and removes it.
func (e *Engine) Stop(ctx context.Context, a id.Attachment, name string) error {
	if _, err := e.beside(ctx, a, name); err != nil {
		return err
	}
	return e.remove(ctx, name)
}

// StopCall ends the container that a call began, if there is one.
func (e *Engine) StopCall(ctx context.Context, a id.Attachment, c id.Call) error {
	if err := e.Stop(ctx, a, besideName(c)); problem.CodeOf(err) != problem.NotFound {
		return err
	}
	return nil
}

// ListBeside names the containers that are beside an attachment's commands; of every attachment, when it is empty.
func (e *Engine) ListBeside(ctx context.Context, a id.Attachment) ([]container.Summary, error) {
	filters := client.Filters{}.Add("label", labelConnector+"="+e.who.Name, labelCall)
	if a != "" {
		filters = filters.Add("label", labelAttachment+"="+string(a))
	}
	list, err := e.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the engine's containers cannot be listed: %v", plain(err))
	}
	return list.Items, nil
}

// EndBeside removes the containers that unwanted says of, by their attachment and when their time is over, and counts those
// that ran.
func (e *Engine) EndBeside(ctx context.Context, a id.Attachment, unwanted func(a id.Attachment, until time.Time) bool) (ran int, err error) {
	list, err := e.ListBeside(ctx, a)
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		until, parseErr := strconv.ParseInt(c.Labels[labelUntil], 10, 64)
		if parseErr != nil {
			until = 0
		}
		if !unwanted(id.Attachment(c.Labels[labelAttachment]), time.Unix(until, 0)) {
			continue
		}
		if c.State == container.StateRunning {
			ran++
		}
		err = errors.Join(err, e.remove(ctx, c.ID))
	}
	return ran, err
}

// Whose is the user that a volume's files are of: the commands', or this process's own.
func Whose(uid, gid int) (int, int) {
	if uid == 0 {
		return os.Geteuid(), os.Getegid()
	}
	return uid, gid
}
