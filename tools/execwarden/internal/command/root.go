package command

import (
	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// Root is the program's command with every command below it, and extra ones.
func Root(extra ...*cobra.Command) *cobra.Command {
	return newApp(nil, nil, nil, func(string) string { return "" }).root(extra...)
}

func (a *app) root(extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "execwarden",
		Short: "A control plane for AI agents",
		Long: `ExecWarden lets every tool call of an AI agent follow a grant that a person can see, approve, revoke and prove.

Data goes to standard output, everything else to standard error. Questions are asked at a terminal only; --yes answers
them beforehand. Exit codes are the same everywhere:

  0 ok   1 failed   2 usage   3 denied   4 not found   5 awaiting approval   6 timeout   130 interrupted

Environment:
  EXECWARDEN_URL         the API's URL, as --url
  EXECWARDEN_TOKEN_FILE  the file with the access token, as --token-file
  EXECWARDEN_TOKEN       the access token itself, when there is no file
  NO_COLOR, TERM=dumb    no colours; there are none without a terminal either`,
		Version:       boot.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.StringVar(&a.flags.url, "url", "", "the API's URL (default: EXECWARDEN_URL, else "+defaultURL+")")
	flags.StringVar(&a.flags.tokenFile, "token-file", "", "file with the access token (default: see execwarden --help)")
	flags.VarP(&a.flags.output, "output", "o", "how data is written: "+render.Choices())
	flags.DurationVar(&a.flags.timeout, "timeout", 0, "how long the command may take (default: 30s for what is answered at once, no limit for what follows)")
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Working with runs:"},
		&cobra.Group{ID: groupConfig, Title: "Configuring:"},
		&cobra.Group{ID: groupProof, Title: "Seeing and proving what happened:"},
	)
	root.AddCommand(
		a.runCommand(), a.runsCommand(), a.approvalsCommand(), a.artifactsCommand(),
		a.applyCommand(), a.agentsCommand(), a.clientsCommand(), a.connectionsCommand(), a.grantsCommand(), a.accessCommand(), a.scriptCommand(), a.notifyCommand(), a.triggersCommand(), a.envCommand(), a.connectCommand(), a.membersCommand(), a.tokensCommand(), a.mcpCommand(), a.keysCommand(),
		a.eventsCommand(), a.ledgerCommand(),
		a.loginCommand(), a.whoamiCommand(), a.versionCommand(),
	)
	root.AddCommand(extra...)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		// A command that only holds others would take a misspelt one for a question for help, and call that a success.
		if !cmd.Runnable() {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	a.markStart(root)
	return root
}

// The groups of commands in the help.
const (
	groupWork   = "work"
	groupConfig = "config"
	groupProof  = "proof"
)

// markStart notes when a command's own work begins: what goes wrong before is usage, found by cobra.
func (a *app) markStart(cmd *cobra.Command) {
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return work(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		a.markStart(sub)
	}
}
