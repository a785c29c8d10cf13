package machine

import "github.com/execwarden/execwarden/schemas/connection"

// ContainersRunArgs are of machine.containers_run.
type ContainersRunArgs struct {
	Image      string            `json:"image"`               // one that the machine's policy lists
	Argv       []string          `json:"argv,omitempty"`      // default: the image's own
	Env        map[string]string `json:"env,omitempty"`       // besides the image's
	Volume     string            `json:"volume,omitempty"`    // where the attachment's volume is in it, such as /work; default: nowhere
	ReadOnly   bool              `json:"read_only,omitempty"` // the volume
	Cwd        string            `json:"cwd,omitempty"`       // in the container
	Timeout    int               `json:"timeout_s,omitempty"` // default 120, at most 3600; then it is ended, also in the background
	Background bool              `json:"background,omitempty"`
}

// ContainersLogsArgs are of machine.containers_logs.
type ContainersLogsArgs struct {
	Container string `json:"container"`
	Max       int    `json:"max_bytes,omitempty"` // of the newest output; default 48 KiB, at most 256 KiB
}

// ContainersStopArgs are of machine.containers_stop.
type ContainersStopArgs struct {
	Container string `json:"container"`
}

// Container is how a container stands.
type Container struct {
	Container string `json:"container"`
	Image     string `json:"image"`
	State     string `json:"state"`            // "running" or "exited"
	Reason    string `json:"reason,omitempty"` // of its end: exited, timeout, oom
	Code      *int   `json:"code,omitempty"`
	Stdout    string `json:"stdout,omitempty"` // the newest
	Stderr    string `json:"stderr,omitempty"`
	Clipped   bool   `json:"clipped,omitempty"` // there was more output
}

const ofContainer = `"container":{"type":"string","description":"as containers_run answered it"}`

var containerTools = []connection.Tool{
	tool("containers_run", connection.Opaque, true, "Run a container of an image that the machine allows, and answer with its exit code and output. With background it answers once it runs. It is removed when it has ended, or with the attachment.",
		`"image":{"type":"string"},"argv":{"type":"array","items":{"type":"string"},"maxItems":256},"env":{"type":"object","additionalProperties":{"type":"string"}},"volume":{"type":"string","description":"where the volume is in it, such as /work"},"read_only":{"type":"boolean"},"cwd":{"type":"string"},"timeout_s":{"type":"integer","minimum":1,"maximum":3600},"background":{"type":"boolean"}`, `"image"`),
	tool("containers_list", connection.Pure, false, "List the containers of this attachment.", ``, ""),
	tool("containers_logs", connection.Pure, false, "Read the newest output of a container that runs in the background.",
		ofContainer+`,"max_bytes":{"type":"integer","minimum":1,"maximum":262144}`, `"container"`),
	tool("containers_stop", connection.Opaque, true, "End a container and remove it, with its newest output.", ofContainer, `"container"`),
}
