package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) clientsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clients",
		Short:   "List, register and remove OAuth clients of external agents",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Lists OAuth clients: programs that log in at the MCP endpoint and then act for an external agent. Some were registered; one that
has a metadata document is here because a member let it act. What a client was given is in execwarden tokens.`, nil),
		Example: "  execwarden clients\n  execwarden clients register editor --redirect http://127.0.0.1/callback\n  execwarden clients register robot --agent nightly --secret-out robot.secret\n  execwarden clients remove editor",
		RunE:    listing(a, "clients", (*client.Client).OAuthClients, clientGrid),
	}
	cmd.AddCommand(a.clientsRegisterCommand(), a.removing("a client", `Removes a client and everything that it was given. It returns when no instance takes a token of it. A member can let a client
that has a metadata document in again; what it had before stays over.`, "  execwarden clients remove editor", (*client.Client).RemoveClient))
	return cmd
}

func clientGrid(list []client.OAuthClient) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "CLIENT"}, {Name: "NAME"}, {Name: "AGENT"}, {Name: "CLIENT ID"}, {Name: "SECRET", Wide: true}, {Name: "REDIRECTS", Wide: true}}}
	for _, c := range list {
		g.Row(render.Text(id.Name(c.Client)), render.Text(c.Name), render.Text(id.Name(c.Agent)), render.Text(c.ClientID), render.Text(c.Fingerprint), render.Text(strings.Join(c.Redirects, " ")))
	}
	return g
}

func (a *app) clientsRegisterCommand() *cobra.Command {
	var k client.NewOAuthClient
	file := ""
	cmd := &cobra.Command{
		Use:   "register NAME",
		Short: "Register a client, or change it",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Registers a client and prints its client_id, and its secret if it has one, this once.

With --redirect, members log in with it, and choose which external agent it acts for. With --agent, it is that agent's own: it
gets access tokens by its secret, without a person (client credentials). A secret that it had before ends.`, map[int]string{4: "there is no such agent"}),
		Example: "  execwarden clients register editor --redirect http://127.0.0.1/callback\n  execwarden clients register robot --agent nightly --secret-out robot.secret",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(k.Redirects) == 0 && k.Agent == "" {
				return usage("say where logins lead back to, --redirect, or whose own client it is, --agent")
			}
			var out *os.File
			if file != "" { // made first: a secret that can be written nowhere would be lost
				if out, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
					return problem.Wrap(err, problem.Invalid, "file %s cannot be made anew (%v)", file, errors.Unwrap(err))
				}
				defer func() {
					if err = errors.Join(err, out.Close()); err != nil {
						err = errors.Join(err, os.Remove(file))
					}
				}()
			}
			ctx, c, done, err := a.asking(cmd.Context(), "registering", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			made, err := c.RegisterClient(ctx, args[0], k)
			if err == nil && out != nil {
				_, err = io.WriteString(out, made.Secret+"\n")
				err = errors.Join(err, out.Sync())
				made.Secret = ""
			}
			if err != nil {
				return err
			}
			return a.printer().One(made, func(w io.Writer) {
				fmt.Fprintln(w, "client_id", render.Inline(made.ClientID))
				if made.Secret != "" {
					fmt.Fprintln(w, "client_secret", render.Inline(made.Secret))
				}
			})
		},
	}
	cmd.Flags().StringVar(&k.Name, "name", "", "what people are shown (default: NAME)")
	cmd.Flags().StringArrayVar(&k.Redirects, "redirect", nil, "where logins may lead back to: https, http on this machine with any port, or a program's own scheme; may be repeated")
	cmd.Flags().StringVar(&k.Agent, "agent", "", "an external agent, whose own client it is")
	cmd.Flags().BoolVar(&k.Secret, "secret", false, "give it a secret (an agent's own always has one)")
	cmd.Flags().StringVar(&file, "secret-out", "", "new file for the secret, mode 0600 (default: standard output)")
	cmd.MarkFlagsMutuallyExclusive("redirect", "agent")
	return cmd
}
