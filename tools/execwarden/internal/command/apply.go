package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/tools/execwarden/internal/manifest"
)

func (a *app) applyCommand() *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:     "apply -f FILE|DIRECTORY",
		Short:   "Make agents, connections, grants, triggers, hooks and environments what files say",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Makes agents, connections, grants, triggers, hooks and environments what YAML files say.

A file holds documents of a kind (Agent, Connection, Grant, Trigger, Hook, Environment) and a name, separated by ---.
They are read strictly: what is wrong is told by file and line, and then nothing is sent. What would change is shown
first and asked about. What is the same already is left alone, but for secrets: the API does not tell whether it has
the same one, so those that files name are always put. Nothing is ever removed, and a grant that somebody revoked
comes back only by --restore-revoked.

Secrets are not in the files. credential:, model: key: and secret: take {file: PATH}, relative to the file that names
it, or {env: NAME}. Nothing else is expanded.`, map[int]string{1: "failed; what was done before is told", 2: "usage, a file that is not valid, or a question without a terminal"}),
		Example: `  execwarden apply -f deploy/warden            # shows the plan and asks
  execwarden apply -f agent.yaml --dry-run     # shows the plan only
  execwarden apply -f deploy/warden --yes      # for scripts

  kind: Agent
  name: triage
  model:
    protocol: anthropic
    url: https://api.anthropic.com
    name: claude-sonnet-4-5
    key: {env: ANTHROPIC_API_KEY}
  instructions: Label new issues.
  ---
  kind: Grant
  name: triage-comments
  agent: triage
  tool: github.add_issue_comment
  repos: [acme/shop]
  approval: always`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.apply(cmd.Context(), o) },
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "file, or directory with .yaml and .yml files; may be repeated")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the plan and do nothing")
	cmd.Flags().BoolVar(&o.restore, "restore-revoked", false, "bring back grants that were revoked")
	_ = cmd.MarkFlagRequired("filename") // fails only for a flag that is not there
	return cmd
}

type applyOptions struct {
	files                []string
	yes, dryRun, restore bool
}

func (a *app) apply(ctx context.Context, o applyOptions) error {
	set, err := manifest.Load(o.files, a.getenv)
	if err != nil {
		return err
	}
	looking, c, done, err := a.asking(ctx, "comparing with what is there", answersWithin)
	if err != nil {
		return err
	}
	plan, err := manifest.NewPlan(looking, c, set, manifest.Options{RestoreRevoked: o.restore, Now: a.now()})
	done()
	if err != nil {
		return err
	}
	report := newApplied(plan)
	work := len(plan.Work())
	people := a.flags.output.ForPeople()
	if people {
		err = a.printPlan(plan)
	} else if !o.dryRun && work > 0 && !o.yes {
		// Standard output is for the program that reads it; whoever answers reads this.
		err = writePlan(a.aside(), plan)
	}
	if err != nil {
		return err
	}
	if !o.dryRun && work > 0 {
		if err := a.confirm(ctx, o.yes, "Apply this?"); err != nil {
			return err
		}
		// However many steps there are, each is answered at once.
		applying, cancel := a.within(ctx, answersWithin+time.Duration(work)*answersWithin/4)
		defer cancel()
		stop := a.progress("applying")
		err = manifest.Apply(applying, c, plan, report.done)
		stop()
	}
	if !people {
		if failed := a.printer().Value(report); failed != nil {
			return failed
		}
		return err
	}
	if err == nil {
		a.note("%s", summary(o.dryRun, work))
	}
	return err
}
