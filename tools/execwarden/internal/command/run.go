package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

// maxPrompt is the longest prompt, in bytes.
const maxPrompt = 256 << 10

func (a *app) runCommand() *cobra.Command {
	var wait, noApprove bool
	cmd := &cobra.Command{
		Use:     "run AGENT PROMPT|-",
		Short:   "Start a run of a hosted agent",
		GroupID: groupWork,
		Args:    cobra.RangeArgs(1, 2),
		Long: exits(`Starts a run of a hosted agent, and prints its id. The prompt "-" is read from standard input.

With --wait it stays until the run ends: progress goes to standard error, the result to standard output. A run that
waits for an approval is waited for; with --no-approve, the command ends then with code 5, and the run waits on. What
ends the command does not end the run: execwarden runs cancel does.`, map[int]string{
			1: "the run failed or was cancelled (with --wait); or the API cannot be reached", 4: "there is no such agent",
			5: "the run waits for an approval (with --wait --no-approve)", 6: "--timeout passed; the run goes on",
		}),
		Example: `  execwarden run triage 'Label issue 7 of acme/shop.'
  git diff | execwarden run reviewer - --wait
  execwarden run triage 'Label issue 7.' --wait --timeout 5m -o json | jq -r .result`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if noApprove && !wait {
				return usage("--no-approve says how to wait; it needs --wait")
			}
			prompt, err := a.prompt(args)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), args[0], prompt, wait, noApprove)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until the run ends, and print its result")
	cmd.Flags().BoolVar(&noApprove, "no-approve", false, "with --wait: end when the run waits for an approval")
	return cmd
}

// prompt reads what a run is asked. Standard input is read only when that was asked for: a script's may never end.
func (a *app) prompt(args []string) (string, error) {
	if len(args) < 2 {
		return "", usage("give a prompt, or - to read it from standard input")
	}
	text := args[1]
	if text == "-" {
		raw, err := io.ReadAll(io.LimitReader(a.in, maxPrompt+1))
		if err != nil {
			return "", problem.Wrap(err, problem.Invalid, "the prompt cannot be read from standard input")
		}
		text = string(raw)
	}
	if text == "" || len(text) > maxPrompt {
		return "", usage("a prompt has 1 to %d bytes", maxPrompt)
	}
	return text, nil
}

func (a *app) run(ctx context.Context, agent, prompt string, wait, noApprove bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	usual := answersWithin
	if wait {
		usual = 0
	}
	ctx, cancel := a.within(ctx, usual)
	defer cancel()
	stop := a.progress("starting")
	started, err := c.StartRun(ctx, agent, prompt)
	stop()
	if err != nil {
		return err
	}
	if !wait {
		err := a.printer().One(started, func(w io.Writer) { fmt.Fprintln(w, render.Inline(string(started.Run))) })
		a.note("follow it: execwarden runs watch %s", started.Run)
		return err
	}
	a.note("started %s", started.Run)
	watch := &watch{app: a, run: runstate.New(started.Run), lines: a.aside(), leave: noApprove}
	if err := watch.follow(ctx, c, client.Cursor{Activity: started.Seq - min(started.Seq, 1)}); err != nil {
		return err
	}
	return a.result(watch.run)
}

// result tells what a run gave, and fails when it gave nothing.
func (a *app) result(r *runstate.Run) error {
	err := a.printer().One(r, func(w io.Writer) {
		if r.Result != "" {
			fmt.Fprintln(w, render.Visible(r.Result))
		}
	})
	if err != nil {
		return err
	}
	return a.verdict(r)
}

// verdict is the error of a run that has not completed.
func (a *app) verdict(r *runstate.Run) error {
	switch r.State {
	case runstate.Completed:
		if r.Apart != "" {
			a.note("the result is too large for an event; it is kept apart, as %s", r.Apart)
		}
		return nil
	case runstate.Failed:
		return fmt.Errorf("%s failed: %s: %s", r.Run, r.Code, r.Message)
	case runstate.Cancelled:
		return fmt.Errorf("%s was cancelled%s", r.Run, reasonOf(r.Message))
	}
	return fmt.Errorf("%s is %s", r.Run, r.State)
}

func reasonOf(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
