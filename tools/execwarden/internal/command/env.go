package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) envCommand() *cobra.Command {
	cmd := a.envListCommand()
	cmd.Use, cmd.Aliases, cmd.Short, cmd.GroupID = "env", []string{"environments"}, "List, connect and attach environments: machines to execute on", groupConfig
	cmd.Example = "  execwarden env\n  execwarden env create builder --driver host\n  execwarden env attach builder --agent triage\n  execwarden env revoke builder --reason 'it was stolen'"
	cmd.AddCommand(a.envListCommand(), a.envCreateCommand(), a.envTokenCommand(), a.envVolumesCommand(), a.envAttachCommand(), a.envOutputCommand(), a.envShellCommand(), a.envPreviewCommand(), a.envReleaseCommand(false), a.envReleaseCommand(true),
		a.envDrainCommand(), a.envCheckpointCommand(), a.envRestoreCommand(), a.envCloneCommand(),
		a.removing("an environment", "Removes an environment: what is attached is revoked, and its machine is let onto the bus no more.", "  execwarden env remove builder", (*client.Client).RemoveEnvironment))
	return cmd
}

func (a *app) envListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List environments",
		Args:  cobra.NoArgs,
		Long: exits(`Lists environments and how their machines stand. Online means that a command was run and a file moved there within the last
30 seconds; faulty, that the machine is there and could not; invited, that a token waits to be used.`, nil),
		Example: "  execwarden env list\n  execwarden env list -o json | jq '.environments[].manifest'",
		RunE:    listing(a, "environments", (*client.Client).Environments, environmentGrid),
	}
}

var presenceTones = map[ask.Presence]render.Tone{ask.Online: render.Good, ask.Faulty: render.Bad, ask.Offline: render.Bad, ask.NotEnrolled: render.Faint}

func environmentGrid(list []ask.Environment) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "ENVIRONMENT"}, {Name: "DRIVER"}, {Name: "STATE"}, {Name: "EXECS"}, {Name: "SEEN"}, {Name: "ATTACHED"}, {Name: "PLATFORM", Wide: true}, {Name: "VERSION", Wide: true}, {Name: "FAULT", Wide: true}}}
	for _, e := range list {
		attached, platform := 0, ""
		for _, v := range e.Volumes {
			if v.Attached != nil {
				attached++
			}
		}
		if e.Manifest != nil {
			platform = e.Manifest.Platform
		}
		state := string(e.State)
		if e.Draining {
			state += ", draining"
		}
		g.Row(render.Text(id.Name(e.Environment)), render.Text(string(e.Driver)), render.Cell{Text: state, Tone: presenceTones[e.State]}, render.Text(strconv.Itoa(e.Execs)),
			render.Text(render.Stamp(e.Seen)), render.Text(strconv.Itoa(attached)), render.Text(platform), render.Text(e.Version), render.Text(e.Fault))
	}
	return g
}

func (a *app) envVolumesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "volumes",
		Short:   "List volumes: the directories that runs work in",
		Args:    cobra.NoArgs,
		Long:    exits("Lists volumes of every environment, and who holds them. A volume has one writer.", nil),
		Example: "  execwarden env volumes",
		RunE:    listing(a, "environments", (*client.Client).Environments, volumeGrid),
	}
}

func volumeGrid(list []ask.Environment) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "ENVIRONMENT"}, {Name: "VOLUME"}, {Name: "HOLDER"}, {Name: "SINCE"}, {Name: "EPOCH"}, {Name: "CHECKPOINTS"}, {Name: "LAST END", Wide: true}}}
	for _, e := range list {
		for _, v := range e.Volumes {
			holder, since, end := "", "", ""
			if v.Attached != nil {
				holder, since = holderOf(v.Attached.Holder), render.Stamp(v.Attached.Since)
			}
			if v.Ended != nil {
				end = string(v.Ended.How) + " " + render.Stamp(v.Ended.At)
			}
			g.Row(render.Text(id.Name(e.Environment)), render.Text(v.Name), render.Text(or(holder, "free")), render.Text(since), render.Text(strconv.Itoa(v.Epoch)), render.Text(checkpointsOf(v)), render.Text(end))
		}
	}
	return g
}

func checkpointsOf(v volume.Defined) string {
	var out []string
	for _, c := range v.Checkpoints {
		out = append(out, strconv.Itoa(c.Generation))
	}
	return strings.Join(out, " ")
}

func holderOf(h volume.Holder) string {
	if h.Agent != "" {
		return "agent " + id.Name(h.Agent)
	}
	return string(h.Session) + string(h.Run)
}

func (a *app) envCreateCommand() *cobra.Command {
	driver := ""
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an environment, and print the command that connects its machine",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Makes an environment and prints the command that its machine is connected with. The token in it is good once, for 15 minutes:
whoever has it may be this environment. The machine dials out; nothing dials in.`, map[int]string{1: "a machine is connected as it already"}),
		Example: "  execwarden env create builder --driver host",
		RunE: func(cmd *cobra.Command, args []string) error {
			env, err := id.Named[id.Environment](args[0])
			if err != nil {
				return usage("%v", err)
			}
			if !environment.Driver(driver).Valid() {
				return usage("--driver is host or docker")
			}
			ctx, c, done, err := a.asking(cmd.Context(), "making an environment", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			if err := c.PutEnvironment(ctx, env, environment.Driver(driver)); err != nil {
				return err
			}
			e, err := c.CreateEnrolment(ctx, args[0], false)
			if err != nil {
				return err
			}
			return a.printer().One(e, func(w io.Writer) { printEnrolment(w, e) })
		},
	}
	cmd.Flags().StringVar(&driver, "driver", string(environment.Host), "host: commands run on the machine, in its own jail; docker: in a container")
	return cmd
}

func printEnrolment(w io.Writer, e client.Enrolment) {
	fmt.Fprintf(w, "On the machine, before %s:\n\n  execwarden connect enrol --url %s --token %s\n  execwarden connect\n", render.Stamp(e.ExpiresAt), e.Server, e.Token)
}

func (a *app) envTokenCommand() *cobra.Command {
	replace := false
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make another token to connect an environment's machine with",
		Args:  cobra.ExactArgs(1),
		Long: exits("Makes a token that is good once, for 15 minutes. One that nobody used before is good no more.",
			map[int]string{1: "a machine is connected as it already, and --replace is not given", 4: "there is no such environment"}),
		Example: "  execwarden env token builder\n  execwarden env token builder --replace   # the machine was rebuilt",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "making a token", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			e, err := c.CreateEnrolment(ctx, args[0], replace)
			if err != nil {
				return err
			}
			return a.printer().One(e, func(w io.Writer) { printEnrolment(w, e) })
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "let the new machine take the place of the one that is enrolled, which is then let in no more")
	return cmd
}

func (a *app) envAttachCommand() *cobra.Command {
	var to client.Attachment
	cmd := &cobra.Command{
		Use:   "attach NAME",
		Short: "Attach a volume of an environment to a run, a session or an agent",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Binds a volume to whoever works on it. What they may do there is what their grants and the machine's own policy both allow. A
volume has one writer: it has to be released before another may have it.`, map[int]string{1: "another holds the volume, or no machine is connected", 4: "there is no such environment"}),
		Example: "  execwarden env attach builder --agent triage\n  execwarden env attach builder --volume web --run run_0197f0c2...",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "attaching", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			v, err := c.Attach(ctx, args[0], to)
			if err != nil {
				return err
			}
			return a.printer().One(v, func(w io.Writer) {
				fmt.Fprintf(w, "volume %s of %s is attached to %s (epoch %d)\n", v.Name, args[0], holderOf(v.Attached.Holder), v.Epoch)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&to.Volume, "volume", "", "its name; it is made if there is none (default: main)")
	f.StringVar(&to.Run, "run", "", "the run, by id")
	f.StringVar(&to.Session, "session", "", "the session, by id: every run of it")
	f.StringVar(&to.Agent, "agent", "", "the agent, by name: every run and conversation of it")
	cmd.MarkFlagsOneRequired("run", "session", "agent")
	cmd.MarkFlagsMutuallyExclusive("run", "session", "agent")
	return cmd
}

func (a *app) envDrainCommand() *cobra.Command {
	off := false
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Let nothing be attached to an environment any more: what is attached goes on",
		Args:  cobra.ExactArgs(1),
		Long: exits("Drains an environment, before its machine is taken away: who holds a volume keeps it until it is released, and nobody gets another.",
			map[int]string{4: "there is no such environment"}),
		Example: "  execwarden env drain builder\n  execwarden env volumes                # who is there still\n  execwarden env drain builder --off",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "draining", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			if err := c.DrainEnvironment(ctx, args[0], off); err != nil {
				return err
			}
			fmt.Fprintln(a.err, map[bool]string{false: "nothing is attached to " + args[0] + " any more; what is goes on", true: "volumes of " + args[0] + " can be attached"}[off])
			return nil
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "let volumes be attached again")
	return cmd
}

func (a *app) envReleaseCommand(revoke bool) *cobra.Command {
	vol, reason := "", ""
	cmd := &cobra.Command{
		Use:     "release NAME",
		Short:   "Release a volume: what runs may end by itself, for 30 seconds",
		Args:    cobra.ExactArgs(1),
		Example: "  execwarden env release builder",
		Long:    exits("Ends an attachment. It returns when the machine has ended what ran and counted what is left.", map[int]string{4: "there is no such environment or volume"}),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "ending the attachment", 0)
			if err != nil {
				return err
			}
			defer done()
			r, err := c.Release(ctx, args[0], vol, revoke, reason)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) { printReleased(w, r) })
		},
	}
	if revoke {
		cmd.Use, cmd.Short, cmd.Example = "revoke NAME", "Take a volume away: what runs is killed", "  execwarden env revoke builder --reason 'it was stolen'"
		cmd.Long = exits("Ends an attachment at once: what runs is killed, with everything that it began. It returns when the machine has counted what is left.", map[int]string{4: "there is no such environment or volume"})
	}
	cmd.Flags().StringVar(&vol, "volume", "", "its name (default: main)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the ledger")
	return cmd
}

func printReleased(w io.Writer, r ask.Released) {
	took := r.Took.Round(time.Millisecond)
	switch {
	case r.Survivors < 0:
		fmt.Fprintf(w, "volume %s is free; its machine was not there to say what still runs, and ends it when its lease lapses\n", r.Volume.Name)
	default:
		fmt.Fprintf(w, "volume %s is free after %s: %s ended, %d left\n", r.Volume.Name, took, render.Count(r.Killed, "process"), r.Survivors)
	}
}
