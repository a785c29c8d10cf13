package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// listing is a command that asks for all of a kind and lists them.
func listing[T any](a *app, kind string, ask func(*client.Client, context.Context) ([]T, error), grid func([]T) *render.Grid) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx, c, done, err := a.asking(cmd.Context(), "asking for "+kind, answersWithin)
		if err != nil {
			return err
		}
		defer done()
		list, err := ask(c, ctx)
		if err != nil {
			return err
		}
		return render.List(a.printer(), kind, list, grid)
	}
}
