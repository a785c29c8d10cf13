package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// tokenVariable is where clients find an agent's token. It is no variable of ours: ours hold a member's.
const tokenVariable = "EXECWARDEN_AGENT_TOKEN"

// clientConfig is what goes into a client's file.
type clientConfig struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Format string `json:"format"` // json or toml
	Config string `json:"config"` // of the file, or to be added to it
	Token  string `json:"token"`  // how the client gets the token, for people
}

// mcpClients write the snippet of each client, as its own documentation has it. No token is in any.
var mcpClients = map[string]func(name, url string, p program) clientConfig{
	"claude-code": func(name, url string, _ program) clientConfig {
		return inJSON(".mcp.json", fromVariable, object{"mcpServers": object{name: object{"type": "http", "url": url, "headers": bearer("${" + tokenVariable + "}")}}})
	},
	"cursor": func(name, url string, _ program) clientConfig {
		return inJSON("~/.cursor/mcp.json", fromVariable, object{"mcpServers": object{name: object{"url": url, "headers": bearer("${env:" + tokenVariable + "}")}}})
	},
	"vscode": func(name, url string, _ program) clientConfig {
		input := name + "-token"
		return inJSON(".vscode/mcp.json", "VS Code asks for the token once and keeps it", object{
			"inputs":  []object{{"type": "promptString", "id": input, "description": "ExecWarden agent token", "password": true}},
			"servers": object{name: object{"type": "http", "url": url, "headers": bearer("${input:" + input + "}")}},
		})
	},
	"codex": func(name, url string, _ program) clientConfig {
		return clientConfig{File: "~/.codex/config.toml", Format: "toml", Token: fromVariable,
			Config: fmt.Sprintf("[mcp_servers.%s]\nurl = %q\nbearer_token_env_var = %q\n", name, url, tokenVariable)}
	},
	"gemini": func(name, url string, _ program) clientConfig {
		return inJSON("~/.gemini/settings.json", fromVariable, object{"mcpServers": object{name: object{"httpUrl": url, "headers": bearer("${" + tokenVariable + "}")}}})
	},
	"stdio": func(name, _ string, p program) clientConfig {
		args := []string{"mcp", "stdio", "--url", p.url}
		if p.connection != "" {
			args = append(args, "--connection", p.connection)
		}
		return inJSON("the client's file of MCP servers", "the token is in the file that is named", object{"mcpServers": object{name: object{
			"command": "execwarden", "args": args, "env": object{"EXECWARDEN_TOKEN_FILE": p.tokenFile}}}})
	},
}

// program is what a client has to know that starts execwarden mcp stdio.
type program struct{ url, connection, tokenFile string }

const fromVariable = "the client reads the token from its environment: export " + tokenVariable

type object = map[string]any

func bearer(reference string) object { return object{"Authorization": "Bearer " + reference} }

func inJSON(file, token string, v object) clientConfig {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // of text
	return clientConfig{File: file, Format: "json", Token: token, Config: b.String()}
}

func clientNames() []string {
	var names []string
	for name := range mcpClients {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (a *app) mcpConfigCommand() *cobra.Command {
	var which, connection, name, agent string
	var to issuing
	cmd := &cobra.Command{
		Use:   "config --client CLIENT",
		Short: "Print what an MCP client's configuration needs",
		Args:  cobra.NoArgs,
		Long: exits(`Prints what to put into a client's file, and tells which file on standard error. The token is not in it: clients take it from
their environment, or ask for it. For a client that is not named here and takes HTTP servers, use the URL with a header
"Authorization: Bearer TOKEN"; for one that takes programs only, --client stdio.

With --agent a token for that external agent is made too, in the file --token-out.`, map[int]string{4: "there is no such agent"}),
		Example: `  execwarden mcp config --client claude-code > .mcp.json
  execwarden mcp config --client codex --agent laptop --token-out laptop.token >> ~/.codex/config.toml
  execwarden mcp config --client vscode --connection github -o json | jq -r .config`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := mcpClients[which]
			if !ok {
				return usage("--client is %s", strings.Join(clientNames(), ", "))
			}
			if name == "" || strings.ContainsFunc(name, func(r rune) bool {
				return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
			}) {
				return usage("--name has letters, digits, - and _ only")
			}
			at, err := a.endpoint(connection)
			if err != nil {
				return err
			}
			if agent == "" && to.file == "" {
				to.file = "agent.token"
			} else if agent == "" || to.file == "" {
				return usage("--agent and --token-out go together")
			} else if err := a.issueFor(cmd, agent, to); err != nil {
				return err
			}
			file, err := filepath.Abs(to.file)
			if err != nil {
				return usage("--token-out: %v", err)
			}
			c := write(name, at, program{a.url(), connection, file})
			c.Client = which
			if a.printer().Format.ForPeople() {
				a.note("for %s; %s", c.File, c.Token)
			}
			return a.printer().One(c, func(w io.Writer) { _, _ = io.WriteString(w, render.Visible(c.Config)) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&which, "client", "", strings.Join(clientNames(), ", "))
	f.StringVar(&connection, "connection", "", "only this connection's tools, under their own names")
	f.StringVar(&name, "name", "execwarden", "what the client calls the server")
	f.StringVar(&agent, "agent", "", "an external agent, for which a token is made")
	to.flags(cmd)
	_ = cmd.MarkFlagRequired("client") // it fails for a flag that is not there only
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(clientNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// issueFor makes an agent's token in a file, and tells of it on standard error only: standard output is the client's file.
func (a *app) issueFor(cmd *cobra.Command, agent string, to issuing) error {
	whose, err := id.Named[id.Agent](agent)
	if err != nil {
		return usage("--agent: %v", err)
	}
	k := client.NewToken{Agent: whose}
	if k.ExpiresAt, err = to.until(a.now()); err != nil {
		return err
	}
	ctx, c, done, err := a.asking(cmd.Context(), "making a token", answersWithin)
	if err != nil {
		return err
	}
	defer done()
	issued, err := to.issue(func() (client.Issued, error) { return c.CreateToken(ctx, k) })
	if err == nil {
		a.noteIssued(issued)
	}
	return err
}
