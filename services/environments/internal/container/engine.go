package container

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// Engine is the machine's Docker engine, as one connector uses it.
type Engine struct {
	who    Owner
	policy *localpolicy.Policy
	api    *client.Client
	env    []string // of the image
}

// Owner is the connector that containers are made for.
type Owner struct {
	Name string // its own among all; it finds its containers by it
	Home string // for people
}

// Open reaches the engine and looks for the policy's image. Problems: unavailable when the engine does not answer,
// not_found when it has no such image.
func Open(ctx context.Context, who Owner, policy *localpolicy.Policy) (*Engine, error) {
	e, err := reach(ctx, who, policy)
	if err != nil {
		return nil, err
	}
	if e.env, err = e.image(ctx, policy.Docker.Image); err != nil {
		return nil, e.close(err)
	}
	return e, nil
}

func reach(ctx context.Context, who Owner, policy *localpolicy.Policy) (*Engine, error) {
	api, err := client.New(client.WithHost("unix://"+policy.Docker.Socket), client.WithTraceProvider(untraced))
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "docker socket: %v", err)
	}
	e := &Engine{who: who, policy: policy, api: api}
	if _, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, e.close(problem.Wrap(err, problem.Unavailable, "the Docker engine does not answer at %s: %v", policy.Docker.Socket, plain(err)))
	}
	return e, nil
}

func (e *Engine) close(because error) error {
	_ = e.api.Close() // because is what counts
	return because
}

// Close lets go of the engine. Containers go on.
func (e *Engine) Close() error { return e.api.Close() }

// Env is the environment that the image gives.
func (e *Engine) Env() []string { return e.env }

// pullWithin is how long an image may take to be fetched.
const pullWithin = 10 * time.Minute

// image finds an image, or has it fetched where the policy says so, and gives its environment.
func (e *Engine) image(ctx context.Context, name string) ([]string, error) {
	found, err := e.api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) && e.policy.Docker.Pull == localpolicy.Missing {
		if err := e.pull(ctx, name); err != nil {
			return nil, err
		}
		found, err = e.api.ImageInspect(ctx, name)
	}
	switch {
	case errdefs.IsNotFound(err):
		return nil, problem.Wrap(err, problem.NotFound, "the Docker engine has no image %s; docker pull it, or set docker.pull: missing in the policy", name)
	case err != nil:
		return nil, problem.Wrap(err, problem.Unavailable, "image %s cannot be looked at: %v", name, plain(err))
	case found.Config == nil:
		return nil, nil
	}
	return found.Config.Env, nil
}

func (e *Engine) pull(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	pulled, err := e.api.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = pulled.Wait(ctx)
	}
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "image %s cannot be fetched: %v", name, plain(err))
	}
	return nil
}

// maxSaid bounds what is shown of a container's own words, in bytes.
const maxSaid = 4 << 10

// said is the end of what a container's shim said, for whoever reads why it did not start.
func (e *Engine) said(ctx context.Context, name string) string {
	logs, err := e.api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return ""
	}
	defer logs.Close()
	var out strings.Builder
	_, _ = stdcopy.StdCopy(&out, &out, io.LimitReader(logs, maxSaid)) // what could be read is shown
	return strings.TrimSpace(out.String())
}

// plain says what is wrong in one line of the engine's.
func plain(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(text, "Error response from daemon: ")
}
