package command

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/bridge"
)

func (a *app) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "mcp",
		Short:   "Connect MCP clients",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: `External agents reach their tools at the MCP endpoint: /mcp for all that their grants allow, /mcp/c/CONNECTION for one
connection's, under the names that it has there.`,
		Example: "  execwarden mcp config --client claude-code\n  execwarden mcp stdio",
	}
	cmd.AddCommand(a.mcpConfigCommand(), a.mcpStdioCommand())
	return cmd
}

// endpoint is the URL at which external agents are served, of one connection or of all.
func (a *app) endpoint(connection string) (string, error) {
	at, err := url.Parse(a.url())
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return "", usage("%.200q is not the http(s) URL of an API, such as http://127.0.0.1:8080", a.url())
	}
	if connection == "" {
		return at.JoinPath("mcp").String(), nil
	}
	if _, err := id.Named[id.Connection](connection); err != nil {
		return "", usage("--connection: %v", err)
	}
	return at.JoinPath("mcp", "c", connection).String(), nil
}

func (a *app) mcpStdioCommand() *cobra.Command {
	connection := ""
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Serve the MCP endpoint over standard input and output",
		Args:  cobra.NoArgs,
		Long: exits(`For MCP clients that start a program and speak with it, instead of asking over HTTP. Each message goes to the endpoint and
back as it is; of a lost connection, the stream is gone on with and the session begun again, and no call is made twice. The
token is an external agent's: --token-file, EXECWARDEN_TOKEN_FILE or EXECWARDEN_TOKEN. What goes wrong is told on standard
error, and to the client as an answer. It ends when the client closes its end.`,
			map[int]string{0: "the client closed its end", 1: "nothing was ever answered: the API cannot be reached, or the client does not read", 3: "nothing was ever answered: the token is not let in", 4: "nothing was ever answered: there is no such connection"}),
		Example: "  execwarden tokens create --agent laptop --token-out laptop.token\n  execwarden mcp stdio --token-file laptop.token\n  execwarden mcp stdio --connection github",
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.endpoint(connection)
			if err != nil {
				return err
			}
			token, err := a.token()
			if err != nil {
				return err
			}
			ctx, cancel := a.within(cmd.Context(), 0)
			defer cancel()
			return bridge.New(bridge.Config{URL: at, Token: token, In: a.in, Out: a.out, Note: a.note}).Run(ctx)
		},
	}
	cmd.Flags().StringVar(&connection, "connection", "", "only this connection's tools, under their own names")
	return cmd
}
