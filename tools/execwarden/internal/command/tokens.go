package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) tokensCommand() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{
			Use:     "list",
			Short:   "List access tokens",
			Args:    cobra.NoArgs,
			Long:    exits("Lists access tokens, those that do not work any more too. Nothing in the list opens anything: the fingerprint is the start\nof the token's SHA-256.", nil),
			Example: "  execwarden tokens list\n  printf %s \"$TOKEN\" | sha256sum | cut -c1-12   # which one is this?",
			RunE:    listing(a, "tokens", (*client.Client).Tokens, tokenGrid),
		}
	}
	cmd := list()
	cmd.Use, cmd.Short, cmd.GroupID = "tokens", "List, make and revoke access tokens", groupConfig
	cmd.Example = "  execwarden tokens\n  execwarden tokens create --role auditor --expires 720h --token-out ci.token\n  execwarden tokens revoke tok_0197f0c2... --reason 'it was in a log'"
	cmd.AddCommand(list(), a.tokensCreateCommand(), a.tokensRevokeCommand())
	return cmd
}

func tokenGrid(list []client.Token) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "TOKEN"}, {Name: "FINGERPRINT"}, {Name: "OF"}, {Name: "ROLE"}, {Name: "ISSUED"}, {Name: "EXPIRES"}, {Name: "STATE"}, {Name: "BY", Wide: true}, {Name: "REASON", Wide: true}}}
	tones := map[string]render.Tone{"active": render.Good, "revoked": render.Bad, "removed": render.Bad, "expired": render.Faint}
	for _, k := range list {
		whose := or(k.Name, string(k.Member))
		if k.Agent != "" {
			whose = "agent " + id.Name(k.Agent)
		}
		if k.Client != "" {
			whose += " by client " + id.Name(k.Client)
		}
		g.Row(render.Text(string(k.Token)), render.Text(k.Fingerprint), render.Text(whose), render.Text(string(k.Role)), render.Text(render.Stamp(k.IssuedAt)),
			render.Text(render.Stamp(k.ExpiresAt)), render.Cell{Text: k.State, Tone: tones[k.State]}, render.Text(k.IssuedBy), render.Text(k.Reason))
	}
	return g
}

func (a *app) tokensCreateCommand() *cobra.Command {
	var of, role, agent string
	var to issuing
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an access token",
		Args:  cobra.NoArgs,
		Long: exits(`Makes an access token and prints it, this once. It is yours, or, when an owner asks, another member's. It is never wider than
its member and than the token that makes it, and does not outlive that one.

With --agent it is an external agent's: a client that keeps its own loop sends it to the MCP endpoint, and reaches the tools that
the agent's grants allow. It opens nothing else.`, map[int]string{4: "there is no such member or agent"}),
		Example: "  execwarden tokens create --role auditor --expires 720h --token-out ci.token\n  execwarden tokens create --member Ada\n  execwarden tokens create --agent laptop --token-out laptop.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			k := client.NewToken{Member: of}
			var err error
			if agent != "" {
				if k.Agent, err = id.Named[id.Agent](agent); err != nil {
					return usage("--agent: %v", err)
				}
			}
			if role != "" {
				if k.Role, err = roleOf(role); err != nil {
					return err
				}
			}
			if k.ExpiresAt, err = to.until(a.now()); err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "making a token", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			return a.issue(to, func() (client.Issued, error) { return c.CreateToken(ctx, k) })
		},
	}
	cmd.Flags().StringVar(&of, "member", "", "whose, by name or id (default: yours)")
	cmd.Flags().StringVar(&agent, "agent", "", "an external agent, whose token it is then")
	cmd.Flags().StringVar(&role, "role", "", string(member.Auditor)+" or wider (default: as wide as may be)")
	cmd.MarkFlagsMutuallyExclusive("agent", "member")
	cmd.MarkFlagsMutuallyExclusive("agent", "role")
	to.flags(cmd)
	return cmd
}

func (a *app) tokensRevokeCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "revoke TOKEN",
		Short: "Revoke an access token, at once and for good",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Revokes an access token, by its id. It returns when the token is refused, and the sessions and event streams that began with it
are over. Tokens that it made stay: see execwarden tokens list -o wide. To end everything of somebody, remove the member.`, map[int]string{4: "there is no such token", 6: "it is recorded, and it is not known yet whether every instance has heard it; or --timeout passed"}),
		Example: "  execwarden tokens revoke tok_0197f0c2... --reason 'it was in a log'",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := id.Parse[id.Token](args[0])
			if err != nil {
				return usage("that is no token's id (tok_...); execwarden tokens list shows ids") // it may be the token itself
			}
			ctx, c, done, err := a.asking(cmd.Context(), "revoking", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.RevokeToken(ctx, which, reason)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printInForce(w, "revoked", r) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the ledger")
	return cmd
}
