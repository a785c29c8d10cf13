package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
)

// Environments lists the environments, and how their machines stand.
func (c *Client) Environments(ctx context.Context) ([]ask.Environment, error) {
	list, err := get[ask.Environments](ctx, c, "/v1/environments", nil)
	return list.Environments, err
}

// PutEnvironment makes an environment.
func (c *Client) PutEnvironment(ctx context.Context, env id.Environment, driver environment.Driver) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, environmentPath(id.Name(env)), nil, struct {
		Driver environment.Driver `json:"driver"`
	}{driver})
	return err
}

// RemoveEnvironment ends an environment and what is attached to it.
func (c *Client) RemoveEnvironment(ctx context.Context, name string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodDelete, environmentPath(name), nil, nil)
}

// DrainEnvironment lets nothing be attached any more; off lets it again.
func (c *Client) DrainEnvironment(ctx context.Context, name string, off bool) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPost, environmentPath(name)+"/drain", nil, struct {
		Off bool `json:"off,omitempty"`
	}{off})
	return err
}

// Enrolment lets one machine enrol, once.
type Enrolment struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	Server    string    `json:"server"`
}

// CreateEnrolment makes a token for a machine; replace lets it take the place of one that has enrolled.
func (c *Client) CreateEnrolment(ctx context.Context, name string, replace bool) (Enrolment, error) {
	return send[Enrolment](ctx, c, http.MethodPost, environmentPath(name)+"/token", nil, struct {
		Replace bool `json:"replace,omitempty"`
	}{replace})
}

// Attachment asks for a volume to be bound to a run, a session or an agent.
type Attachment struct {
	Volume  string `json:"volume,omitempty"`
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

// Attach binds a volume of an environment.
func (c *Client) Attach(ctx context.Context, name string, to Attachment) (volume.Defined, error) {
	return send[volume.Defined](ctx, c, http.MethodPost, environmentPath(name)+"/attach", nil, to)
}

// Release ends an attachment; revoke kills what runs under it.
func (c *Client) Release(ctx context.Context, name, vol string, revoke bool, reason string) (ask.Released, error) {
	return send[ask.Released](ctx, c, http.MethodPost, environmentPath(name)+"/release", nil, struct {
		Volume string `json:"volume,omitempty"`
		Revoke bool   `json:"revoke,omitempty"`
		Reason string `json:"reason,omitempty"`
	}{vol, revoke, reason})
}

// VolumeCopy names what is checkpointed, restored or cloned.
type VolumeCopy struct {
	Volume     string `json:"volume,omitempty"` // default: main
	Checkpoint int    `json:"checkpoint,omitempty"`
	To         string `json:"to,omitempty"`
}

// CheckpointVolume keeps what a volume holds.
func (c *Client) CheckpointVolume(ctx context.Context, name string, of VolumeCopy) (volume.Defined, error) {
	return send[volume.Defined](ctx, c, http.MethodPost, environmentPath(name)+"/checkpoint", nil, of)
}

// RestoreVolume brings a checkpoint back.
func (c *Client) RestoreVolume(ctx context.Context, name string, of VolumeCopy) (volume.Defined, error) {
	return send[volume.Defined](ctx, c, http.MethodPost, environmentPath(name)+"/restore", nil, of)
}

// CloneVolume makes a volume that holds what another does.
func (c *Client) CloneVolume(ctx context.Context, name string, of VolumeCopy) (volume.Defined, error) {
	return send[volume.Defined](ctx, c, http.MethodPost, environmentPath(name)+"/clone", nil, of)
}

func environmentPath(name string) string { return "/v1/environments/" + segment(name) }

// Output gives what a call on a machine printed, from a place on. It waits up to wait for some.
func (c *Client) Output(ctx context.Context, call id.Call, after uint64, wait time.Duration) (ask.Output, error) {
	return get[ask.Output](ctx, c, "/v1/calls/"+segment(string(call))+"/output", url.Values{
		"after": {strconv.FormatUint(after, 10)}, "wait_s": {strconv.Itoa(int(wait.Seconds()))},
	})
}
