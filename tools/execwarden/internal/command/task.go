package command

import (
	"encoding/json"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
)

// maxTask is the largest file of a task, in bytes: what the API takes in one question.
const maxTask = 400 << 10

// readTask reads the calls of a task from a file, none when there is no file.
func readTask(path string) ([]ask.PlannedCall, error) {
	if path == "" {
		return nil, nil
	}
	from := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxTask+1))
	switch {
	case err != nil:
		return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
	case len(text) > maxTask:
		return nil, problem.New(problem.TooLarge, "%s is over %d bytes", path, maxTask)
	}
	var task struct {
		Calls []struct {
			Tool    string `yaml:"tool"`
			Args    any    `yaml:"args"`
			Tainted bool   `yaml:"tainted"`
		} `yaml:"calls"`
	}
	if err := yaml.UnmarshalWithOptions(text, &task, yaml.Strict()); err != nil {
		return nil, problem.New(problem.Invalid, "%s: %s", path, yaml.FormatError(err, false, true))
	}
	if n := len(task.Calls); n == 0 || n > ask.MaxPlanned {
		return nil, problem.New(problem.Invalid, "%s has %d calls; give 1 to %d", path, n, ask.MaxPlanned)
	}
	calls := make([]ask.PlannedCall, len(task.Calls))
	for i, c := range task.Calls {
		if c.Tool == "" {
			return nil, problem.New(problem.Invalid, "%s: call %d names no tool", path, i+1)
		}
		if c.Args == nil {
			c.Args = struct{}{}
		}
		args, err := json.Marshal(c.Args)
		if err != nil {
			return nil, problem.New(problem.Invalid, "%s: the arguments of call %d are not what JSON can say", path, i+1)
		}
		calls[i] = ask.PlannedCall{Tool: c.Tool, Args: args, Tainted: c.Tainted}
	}
	return calls, nil
}
