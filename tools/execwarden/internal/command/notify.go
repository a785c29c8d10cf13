package command

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) notifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify",
		Short:   "List where approvers are told, add a target, test or remove one",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Lists the targets where approvers are told that a call waits, escalates, or was decided or expired. Addresses are sealed
and not shown; a webhook's host is.`, nil),
		Example: "  execwarden notify\n  execwarden notify add oncall --webhook https://hooks.example.com/execwarden\n  execwarden notify test oncall",
		RunE:    listing(a, "targets", (*client.Client).Targets, targetGrid),
	}
	cmd.AddCommand(a.notifyAddCommand(), a.notifyTestCommand(), a.notifyRemoveCommand())
	return cmd
}

func targetGrid(list []target.Defined) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "TARGET"}, {Name: "TYPE"}, {Name: "HOST"}, {Name: "ABOUT"}, {Name: "ARGUMENTS"}, {Name: "FINGERPRINT", Wide: true}, {Name: "PRIVATE", Wide: true}}}
	for _, t := range list {
		var about []string
		for _, a := range t.About {
			about = append(about, string(a))
		}
		g.Row(render.Text(id.Name(t.Target)), render.Text(string(t.Type)), render.Text(t.Host), render.Text(strings.Join(about, ",")),
			render.Text(strconv.FormatBool(t.Arguments)), render.Text(t.Fingerprint), render.Text(strings.Join(t.Private, ",")))
	}
	return g
}

type notifyAdd struct {
	webhook, slackFile, mail, secretFile string
	about                                []string
	def                                  target.Defined
}

func (a *app) notifyAddCommand() *cobra.Command {
	var n notifyAdd
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a target, or change one",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Adds a place where approvers are told, or changes the one that has the name. A webhook is signed as Standard Webhooks has
it; without --secret-file the secret is made, and shown once. A chat's incoming webhook is a secret itself, so its URL is
read from a file, - is standard input. Mail goes through the server that the deployment configured. The arguments of calls
may hold what is not for everybody: they are told only with --include-arguments.`, nil),
		Example: "  execwarden notify add oncall --webhook https://hooks.example.com/execwarden\n  execwarden notify add chat --slack-file slack.url --about requested,escalated\n  execwarden notify add lead --mail lead@example.com --about escalated",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.addTarget(cmd, args[0], n)
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.webhook, "webhook", "", "URL that takes signed webhooks")
	f.StringVar(&n.slackFile, "slack-file", "", "file with the URL of an incoming webhook of Slack, Mattermost and others; - is standard input")
	f.StringVar(&n.mail, "mail", "", "mail address")
	f.StringVar(&n.secretFile, "secret-file", "", "file with the secret that signs webhooks, whsec_...; default: one is made")
	f.StringSliceVar(&n.about, "about", nil, "what it is told of: requested, escalated, decided, expired; default: all")
	f.BoolVar(&n.def.Arguments, "include-arguments", false, "tell the arguments of calls, too")
	f.StringSliceVar(&n.def.Private, "private", nil, "address:port that may be reached although not public")
	return cmd
}

func (a *app) addTarget(cmd *cobra.Command, name string, n notifyAdd) error {
	var err error
	if n.def.Target, err = id.Named[id.Target](name); err != nil {
		return usage("%v", err)
	}
	for _, text := range n.about {
		n.def.About = append(n.def.About, target.About(text))
	}
	ways, address := 0, ""
	for _, way := range []struct {
		by   target.Type
		text string
	}{{target.Webhook, n.webhook}, {target.Slack, n.slackFile}, {target.Mail, n.mail}} {
		if way.text != "" {
			ways, n.def.Type, address = ways+1, way.by, way.text
		}
	}
	if ways != 1 {
		return usage("say where: one of --webhook, --slack-file and --mail")
	}
	if n.def.Type == target.Slack {
		if address, err = a.line(n.slackFile); err != nil {
			return err
		}
	}
	secret := ""
	if n.secretFile != "" {
		if secret, err = a.line(n.secretFile); err != nil {
			return err
		}
	}
	ctx, c, done, err := a.asking(cmd.Context(), "adding", answersWithin)
	if err != nil {
		return err
	}
	defer done()
	made, err := c.PutTarget(ctx, n.def, address, secret)
	if err != nil {
		return err
	}
	return a.printer().One(made, func(w io.Writer) {
		fmt.Fprintf(w, "%s is told; try it: execwarden notify test %s\n", name, name)
		if made.Secret != "" {
			fmt.Fprintf(w, "signing secret, shown this once: %s\n", made.Secret)
		}
	})
}

// maxLine is the longest secret that is read, in bytes.
const maxLine = 4 << 10

// line reads the one line of a secret's file, or of standard input. No message repeats it.
func (a *app) line(file string) (string, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", problem.New(problem.Invalid, "%v", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxLine+1))
	text := strings.TrimSpace(string(raw))
	if err != nil || text == "" || len(raw) > maxLine || strings.ContainsAny(text, "\r\n") {
		return "", problem.New(problem.Invalid, "%s cannot be read, or is not one line of at most %d bytes", file, maxLine)
	}
	return text, nil
}

func (a *app) notifyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "test NAME",
		Short:   "Send a notice that is about nothing",
		Args:    cobra.ExactArgs(1),
		Long:    exits("Sends a notice that is about nothing, now, and says whether the target took it.", map[int]string{1: "it did not take the notice", 4: "there is no such target"}),
		Example: "  execwarden notify test oncall",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "sending", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			if err := c.TestTarget(ctx, args[0]); err != nil {
				return err
			}
			return a.printer().One(struct {
				Taken bool `json:"taken"`
			}{true}, func(w io.Writer) { fmt.Fprintf(w, "%s took the notice\n", args[0]) })
		},
	}
}

func (a *app) notifyRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a target and forget its address",
		Args:    cobra.ExactArgs(1),
		Long:    exits("Removes a target. Its address is forgotten; notices that were not sent to it yet are given up.", map[int]string{4: "there is no such target"}),
		Example: "  execwarden notify remove oncall",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "removing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.RemoveTarget(ctx, args[0])
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { fmt.Fprintf(w, "removed, at control sequence %d\n", r.Seq) })
		},
	}
}
