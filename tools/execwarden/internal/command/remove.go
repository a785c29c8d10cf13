package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// removing makes the command that removes a thing of one sort. It does not ask: who removes is in a hurry, and what is
// removed can be applied again.
func (a *app) removing(noun, long, example string, remove func(*client.Client, context.Context, string) (ask.InForce, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove " + noun + ", at once",
		Args:  cobra.ExactArgs(1),
		Long: exits(long, map[int]string{4: "there is no such thing",
			6: "the removal is recorded, and it is not known yet whether every instance has heard it; or --timeout passed"}),
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "removing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := remove(c, ctx, args[0])
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printInForce(w, "removed", r) })
		},
	}
}

// printInForce says when a change was in force, and who did not confirm it.
func printInForce(w io.Writer, what string, r ask.InForce) {
	fmt.Fprintf(w, "%s; in force after %s on %s, at control sequence %d\n", what, client.Took(r), render.Count(r.Heard, "instance"), r.Seq)
	for _, f := range r.Fenced {
		fmt.Fprintf(w, "not heard by %s: it starts nothing until it has, and was not told to stop what it does\n", f)
	}
}
