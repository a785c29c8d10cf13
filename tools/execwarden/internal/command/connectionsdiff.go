package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) connectionsDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff CONNECTION",
		Short: "Show what changed of a connection's tools since they were granted",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows the tools that the provider describes otherwise than when they were granted, what is different, and the grants
that hold their calls because of it. Apply a grant again to let it mean the new description.`, map[int]string{4: "there is no such connection"}),
		Example: "  execwarden connections diff tickets\n  execwarden connections diff tickets -o json | jq -r '.tools[].tool'",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "comparing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			diff, err := c.DiffConnection(ctx, args[0])
			if err != nil {
				return err
			}
			if diff.Truncated {
				a.note("warning: there is more than one answer holds; apply some grants again, and compare the rest")
			}
			return a.printer().One(diff, func(w io.Writer) {
				if len(diff.Tools) == 0 {
					fmt.Fprintln(w, "no grant holds calls because of a change")
				}
				for _, t := range diff.Tools {
					writeToolDiff(w, t)
				}
			})
		},
	}
}

func writeToolDiff(w io.Writer, t ask.ToolDiff) {
	names := make([]string, len(t.Grants))
	for i, g := range t.Grants {
		names[i] = id.Name(g)
	}
	fmt.Fprintf(w, "changed %s %s, held by %s\n", render.Inline(t.Tool), t.ChangedAt.UTC().Format(time.DateTime+"Z"), render.Inline(strings.Join(names, ", ")))
	if len(t.Changes) == 0 {
		fmt.Fprintln(w, "  what it was is not recorded")
	}
	for _, c := range t.Changes {
		fmt.Fprintf(w, "  %s\n", render.Inline(c.Field))
		for _, line := range lines(c.Old) {
			fmt.Fprintf(w, "  - %s\n", render.Inline(line))
		}
		for _, line := range lines(c.New) {
			fmt.Fprintf(w, "  + %s\n", render.Inline(line))
		}
	}
}

// lines splits a text, of which an empty one has none.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
