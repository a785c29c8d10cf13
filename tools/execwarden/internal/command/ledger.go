package command

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// verifiedWithin is how long a proof may take: it reads everything that there is.
const verifiedWithin = 5 * time.Minute

// verified is the verdict of a ledger that proved itself.
const verified = "verified"

func (a *app) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ledger",
		Short:   "Prove the record of what happened",
		GroupID: groupProof,
		Args:    cobra.NoArgs,
		Long:    "The ledger is the record of everything that happened, as a Merkle tree per stream with signed heads.",
		Example: "  execwarden ledger verify",
	}
	cmd.AddCommand(a.ledgerVerifyCommand())
	return cmd
}

func (a *app) ledgerVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Have the ledger prove itself",
		Args:  cobra.NoArgs,
		Long: exits(`Has the ledger compute every hash again, from the stored events up to the signed heads, and names each fault.
The last line is the verdict: verified, tampered, incomplete or unverifiable.`, map[int]string{1: "the ledger is tampered, incomplete or unverifiable; or the API cannot be reached"}),
		Example: "  execwarden ledger verify\n  execwarden ledger verify -o json | jq -r .verdict",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "verifying every hash", verifiedWithin)
			if err != nil {
				return err
			}
			v, err := c.Verify(ctx)
			done()
			if err != nil {
				return err
			}
			if err := a.printer().One(v, func(w io.Writer) { writeVerified(w, v) }); err != nil {
				return err
			}
			if v.Verdict != verified {
				return errors.New("the ledger is not verified; keep its database and streams as they are, and compare with a checkpoint that was kept elsewhere")
			}
			return nil
		},
	}
}

func writeVerified(w io.Writer, v ask.Verified) {
	for _, t := range v.Trees {
		fmt.Fprintf(w, "%s: %d leaves, root %s\n", render.Inline(t.Stream), t.Size, render.Inline(t.Root))
	}
	fmt.Fprintf(w, "%d leaves, %d checkpoints\n", v.Leaves, v.Checkpoints)
	for _, f := range v.Faults {
		fmt.Fprintf(w, "fault: %s\n", render.Inline(f))
	}
	fmt.Fprintf(w, "ledger: %s\n", render.Inline(v.Verdict))
}
