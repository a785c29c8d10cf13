package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) membersCommand() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{
			Use:     "list",
			Short:   "List members",
			Args:    cobra.NoArgs,
			Long:    exits("Lists members, those who were removed too. Addresses are shown to admins and owners.", nil),
			Example: "  execwarden members list\n  execwarden members list -o json | jq -r '.members[] | select(.state==\"active\").name'",
			RunE:    listing(a, "members", (*client.Client).Members, memberGrid),
		}
	}
	cmd := list()
	cmd.Use, cmd.Short, cmd.GroupID = "members", "List, add, change and remove members", groupConfig
	cmd.Example = "  execwarden members\n  execwarden members add Ada --role approver --token-out ada.token\n  execwarden members remove Ada --reason 'left the company'"
	cmd.AddCommand(list(), a.membersAddCommand(), a.membersRoleCommand(), a.membersRemoveCommand(), a.membersEraseCommand())
	return cmd
}

func memberGrid(list []client.Member) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "MEMBER"}, {Name: "NAME"}, {Name: "ROLE"}, {Name: "STATE"}, {Name: "EMAIL", Wide: true}, {Name: "REASON", Wide: true}}}
	for _, m := range list {
		tone := render.Good
		if m.State != "active" {
			tone = render.Bad
		}
		g.Row(render.Text(string(m.Member)), render.Text(m.Name), render.Text(string(m.Role)), render.Cell{Text: m.State, Tone: tone}, render.Text(m.Email), render.Text(m.Reason))
	}
	return g
}

const roles = "owner, admin, approver or auditor"

// roleOf reads a role before anything is asked.
func roleOf(text string) (member.Role, error) {
	if !member.Role(text).Valid() {
		return "", usage("role %.40q is not %s", text, roles)
	}
	return member.Role(text), nil
}

func (a *app) membersAddCommand() *cobra.Command {
	var role, email string
	var to issuing
	cmd := &cobra.Command{
		Use:   "add NAME --role ROLE",
		Short: "Add a member, and make a token for them",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Adds a member and prints an access token for them, this once; give it to them on a way that you trust. With it they make a
link to the console (execwarden login) and tokens of their own.

An owner may do everything, an admin everything but make and remove owners; an approver reads and decides; an auditor
reads. Only an owner makes owners.

The name and the address are in no event, and can be erased after a removal.`, map[int]string{1: "somebody has that name; or the API cannot be reached"}),
		Example: "  execwarden members add 'Ada Lovelace' --role approver --email ada@example.com --token-out ada.token\n  execwarden members add ci --role auditor --expires 720h",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := roleOf(role)
			if err != nil {
				return err
			}
			until, err := to.until(a.now())
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "adding", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			return a.issue(to, func() (client.Issued, error) {
				return c.AddMember(ctx, client.NewMember{Name: args[0], Email: email, Role: r, ExpiresAt: until})
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", roles)
	cmd.Flags().StringVar(&email, "email", "", "their address, for whoever looks them up")
	_ = cmd.MarkFlagRequired("role") // it is a flag of ours
	to.flags(cmd)
	return cmd
}

func (a *app) membersRoleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "role MEMBER ROLE",
		Short: "Give a member another role",
		Args:  cobra.ExactArgs(2),
		Long: exits(`Gives a member, by name or id, another role. It returns when it holds everywhere. A narrower role holds for tokens that
exist too, and for votes on approvals that are open; a wider one is for tokens made from now on.`, map[int]string{1: "they are the last owner; or the API cannot be reached", 4: "there is no such member", 6: "it is recorded, and it is not known yet whether every instance has heard it; or --timeout passed"}),
		Example: "  execwarden members role Ada admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := roleOf(args[1])
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "changing the role", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.SetRole(ctx, args[0], role)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printInForce(w, render.Inline(args[0])+" is "+string(role), r) })
		},
	}
}

func (a *app) membersRemoveCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a member, at once and for good",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Removes a member, by name or id. It returns when nobody takes them for a member any more: their tokens, sessions and login
links are refused, their event streams end, and their votes on approvals that are open do not count. Whoever comes
back is added anew. Runs that they started go on, and grants that they made stay: see execwarden runs and grants.

It does not ask: who removes somebody is in a hurry. The last owner cannot be removed.`, map[int]string{1: "they are the last owner; or the API cannot be reached", 4: "there is no such member", 6: "it is recorded, and it is not known yet whether every instance has heard it; or --timeout passed"}),
		Example: "  execwarden members remove Ada --reason 'left the company'\n  execwarden members remove mem_0197f0c2...",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "removing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.RemoveMember(ctx, args[0], reason)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printInForce(w, "removed", r) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the ledger")
	return cmd
}

func (a *app) membersEraseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "erase MEMBER",
		Short: "Erase the name and address of a member who was removed",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Erases the name and the address of somebody who was removed. Events have neither: what they did stays in the ledger under
their id.`, map[int]string{1: "they were not removed; or the API cannot be reached", 4: "there is no such member"}),
		Example: "  execwarden members erase Ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "erasing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			if err := c.EraseMember(ctx, args[0]); err != nil {
				return err
			}
			a.note("erased")
			return nil
		},
	}
}
