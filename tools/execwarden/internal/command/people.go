package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "login",
		Short: "Make a link that opens the console in a browser, once",
		Args:  cobra.NoArgs,
		Long: exits(`Prints a link that opens the console in a browser, as whom the token stands for. It works once and for some
minutes; whoever has it is let in, so do not pass it on.`, nil),
		Example: "  execwarden login\n  xdg-open \"$(execwarden login)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking for a link", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			login, err := c.NewLogin(ctx)
			if err != nil {
				return err
			}
			err = a.printer().One(login, func(w io.Writer) { fmt.Fprintln(w, render.Inline(login.URL)) })
			if err == nil {
				a.note("works once, until %s", render.Stamp(login.ExpiresAt))
			}
			return err
		},
	}
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Show whom the access token stands for",
		Args:    cobra.NoArgs,
		Long:    exits("Shows the tenant, the member and the role of the access token.", nil),
		Example: "  execwarden whoami",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			who, err := c.Whoami(ctx)
			if err != nil {
				return err
			}
			return a.printer().One(who, func(w io.Writer) {
				fmt.Fprintf(w, "%s of %s, role %s\n", render.Inline(string(who.Member)), render.Inline(string(who.Tenant)), render.Inline(string(who.Role)))
			})
		},
	}
}
