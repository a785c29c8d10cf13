package command

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) grantsRevokeCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "revoke GRANT",
		Short: "Revoke a grant, at once",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Revokes a grant. It returns when that is in force: from then on no call starts under the grant, and what
is in flight was told to stop. It does not ask: who revokes is in a hurry. Applying files does not bring the grant back
unless they are applied with --restore-revoked.`, map[int]string{4: "there is no such grant", 6: "the revocation is recorded, and it is not known yet whether every instance has heard it; or --timeout passed"}),
		Example: "  execwarden grants revoke triage-comments --reason 'it answers spam'",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "revoking", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.Revoke(ctx, args[0], reason)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printInForce(w, "revoked", r) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the ledger")
	return cmd
}
