package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

// maxScript is the largest script, in bytes: what the runtime takes.
const maxScript = 64 << 10

func (a *app) scriptRunCommand() *cobra.Command {
	var agent, inputFile string
	var given []string
	var noApprove bool
	cmd := &cobra.Command{
		Use:   "run FILE|- --agent AGENT",
		Short: "Run a script as an agent, and print its value",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Runs JavaScript or TypeScript in the sandbox as an agent, without asking a model. The file "-" is standard input, 64 KiB
at most. The run and each call that the script makes go by the agent's grants, and are recorded, as when the agent's
model had written it.

What the script is to work on it finds as the global input, an object that it cannot change: of --input, a file with JSON,
and of --arg, which adds a text. All of it has 64 KiB at most, and is in the record.

The value is the data, on standard output; with -o json it comes with warnings and how the sandbox is isolated. Console
lines and calls go to standard error as they happen. A call that waits for an approval is waited for, and the command
that decides it is named; with --no-approve the command ends then with code 5, and the run waits on. Ctrl-C and
--timeout cancel the run.`, map[int]string{
			1: "the script failed or was cancelled; or the API cannot be reached", 3: "no token, its role does not allow this, or no grant allows the script",
			4: "there is no such agent", 5: "a call waits for an approval (with --no-approve)", 6: "--timeout passed, or the script took its own time; the run is over",
		}),
		Example: `  execwarden script run report.ts --agent triage
  echo 'return (await tools.tickets.find_owner({component: "api"})).team' | execwarden script run - --agent triage
  execwarden script run report.ts --agent triage -o json | jq .value
  echo 'return "hello, " + input.name' | execwarden script run - --agent triage --arg name=Ada`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, source, err := a.scriptSource(args[0])
			if err != nil {
				return err
			}
			input, err := scriptInput(inputFile, given)
			if err != nil {
				return err
			}
			return a.runScript(cmd.Context(), agent, name, source, input, noApprove)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent's name")
	cmd.Flags().StringArrayVar(&given, "arg", nil, "a text of the script's input, as NAME=VALUE; may be given again")
	cmd.Flags().StringVar(&inputFile, "input", "", "a file with the script's input, a JSON object")
	cmd.Flags().BoolVar(&noApprove, "no-approve", false, "end when a call waits for an approval")
	_ = cmd.MarkFlagRequired("agent") // it fails for a flag that is not there only
	return cmd
}

// scriptSource reads a script, and gives a name for the list of runs.
func (a *app) scriptSource(path string) (name, source string, err error) {
	from, name := a.in, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", "", problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
		}
		defer f.Close()
		from, name = f, filepath.Base(path)
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxScript+1))
	switch {
	case err != nil:
		return "", "", problem.Wrap(err, problem.Invalid, "%s cannot be read", name)
	case len(raw) == 0 || len(raw) > maxScript:
		return "", "", usage("a script has 1 to %d bytes", maxScript)
	}
	return name, string(raw), nil
}

// maxInput is the largest input of a script, in bytes.
const maxInput = 64 << 10

// scriptInput makes a script's input of a file and of texts by name; nil of neither.
func scriptInput(path string, given []string) (json.RawMessage, error) {
	if path == "" && len(given) == 0 {
		return nil, nil
	}
	input := map[string]json.RawMessage{}
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxInput+1))
		switch {
		case err != nil:
			return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
		case len(raw) > maxInput:
			return nil, usage("the input of a script has at most %d bytes", maxInput)
		}
		if err := json.Unmarshal(raw, &input); err != nil || input == nil {
			return nil, usage("%s is not a JSON object", path)
		}
	}
	for _, arg := range given {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, usage("--arg %.80q is not NAME=VALUE", arg)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, usage("--arg %s is no text", name)
		}
		input[name] = text
	}
	all, err := json.Marshal(input)
	if err != nil || len(all) > maxInput {
		return nil, usage("the input of a script has at most %d bytes", maxInput)
	}
	return all, nil
}

func (a *app) runScript(ctx context.Context, agent, name, source string, input json.RawMessage, noApprove bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := a.within(ctx, 0)
	defer cancel()
	stop := a.progress("starting")
	started, err := c.RunScript(ctx, agent, name, source, input)
	stop()
	if err != nil {
		return err
	}
	a.note("started %s", started.Run)
	w := &scriptWatch{watch: watch{app: a, run: runstate.New(started.Run), lines: a.aside(), leave: noApprove}, said: map[int]bool{}}
	w.value.Run = started.Run
	if err := w.follow(ctx, c, client.Cursor{Activity: started.Seq - min(started.Seq, 1)}); err != nil {
		return err
	}
	return w.result()
}

// scriptValue is what a script gave, for programs.
type scriptValue struct {
	Run       id.Run          `json:"run"`
	State     runstate.State  `json:"state"`
	Value     json.RawMessage `json:"value,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Notes     []string        `json:"notes,omitempty"`
	Isolation string          `json:"isolation,omitempty"`
	Code      string          `json:"code,omitempty"`    // of a failure
	Message   string          `json:"message,omitempty"` // why there is no value
}

// scriptWatch follows a run whose one call is a script. Console lines are shown once each: as they come, or with the
// result when they were not seen to.
type scriptWatch struct {
	watch
	value scriptValue
	said  map[int]bool // console lines that were shown, by number
	own   bool         // the script failed by itself: it was let run
}

// runJavaScript is the tool that a script is a call of. The run has one: a script starts no scripts.
const runJavaScript = "runtime.run_javascript"

// follow ends the run with whatever ends the command before it, except that somebody has to approve a call.
func (w *scriptWatch) follow(ctx context.Context, c *client.Client, after client.Cursor) error {
	_, err := c.Tail(ctx, client.Filter{Run: string(w.run.Run)}, after, w)
	switch {
	case errors.Is(err, errEnough) && !w.run.Over():
		return problem.New(problem.Held, "%s waits for a person to decide on %s: execwarden approvals show %s", w.run.Run, w.run.Waits[0], w.run.Waits[0])
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() == nil:
		w.app.note("%s goes on; follow it: execwarden runs watch %s", w.run.Run, w.run.Run)
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingWithin)
	defer cancel()
	if stopErr := c.CancelRun(ending, w.run.Run, "the command that started it ended"); stopErr != nil && problem.CodeOf(stopErr) != problem.Conflict {
		w.app.note("%s could not be told to stop: %s; stop it: execwarden runs cancel %s", w.run.Run, messageOf(stopErr), w.run.Run)
	} else {
		w.app.note("%s is told to stop", w.run.Run)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return problem.Wrap(err, problem.Timeout, "%s has not ended within --timeout", w.run.Run)
	}
	return err
}

// endingWithin is how long an interrupted command takes to cancel its run.
const endingWithin = 5 * time.Second

// Event implements client.Reader.
func (w *scriptWatch) Event(e client.Event, at client.Cursor) error {
	if envelope, err := e.Envelope(); err == nil {
		if ev, err := envelope.Decode(); err == nil {
			switch ev := ev.(type) {
			case script.Started:
				w.value.Isolation = ev.Tier
			case call.Finished:
				if ev.Tool == runJavaScript {
					w.finished(ev)
				}
			}
		}
	}
	return w.watch.Event(e, at)
}

func (w *scriptWatch) finished(ev call.Finished) {
	w.own = ev.ToolError
	var r struct {
		Logs     []struct{ Level, Text string }
		Warnings []string
		Notes    []string
	}
	if json.Unmarshal(ev.Body.Result, &r) != nil {
		return // kept apart, as the run's own event says
	}
	for i, l := range r.Logs {
		w.line(i+1, l.Level, l.Text)
	}
	for _, text := range append(r.Notes, r.Warnings...) {
		w.app.note("warning: %s", render.Inline(text))
	}
	w.value.Warnings, w.value.Notes = r.Warnings, r.Notes
}

// News implements client.NewsReader.
func (w *scriptWatch) News(said call.News) {
	if said.Tool != runJavaScript { // of a call that the script makes
		w.watch.News(said)
		return
	}
	w.line(said.N, said.Level, said.Message)
}

func (w *scriptWatch) line(n int, level, text string) {
	if w.said[n] {
		return
	}
	w.said[n] = true
	if level == "" || level == "info" {
		level = "log"
	}
	w.app.note("console.%s: %s", level, text)
}

// result tells the script's value, and fails when it has none.
func (w *scriptWatch) result() error {
	v := w.value
	v.State, v.Code, v.Message = w.run.State, w.run.Code, w.run.Message
	if w.run.Result != "" {
		v.Value = json.RawMessage(w.run.Result)
	}
	err := w.app.printer().One(v, func(out io.Writer) {
		if text := ""; json.Unmarshal(v.Value, &text) == nil {
			_, _ = io.WriteString(out, render.Visible(text)+"\n") // the printer finds what could not be written
		} else if len(v.Value) > 0 {
			_, _ = io.WriteString(out, render.Visible(unseen.Legible(v.Value))+"\n")
		}
	})
	switch {
	case err != nil:
		return err
	case w.run.State == runstate.Failed:
		return failed(w.run, w.own)
	}
	return w.app.verdict(w.run)
}

// failed gives a failure the code that the command ends with. What a script fails with by itself, such as a call of its
// that is denied, says nothing about the command's own arguments and rights; only its time is told apart.
func failed(r *runstate.Run, own bool) error {
	code := problem.Code(r.Code)
	if own && code != problem.Timeout {
		code = problem.Upstream
	}
	return problem.New(code, "%s failed: %s: %s", r.Run, r.Code, r.Message)
}
