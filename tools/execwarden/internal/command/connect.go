package command

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/connect"
)

func (a *app) connectCommand() *cobra.Command {
	var cfg connect.Config
	verbose := false
	cmd := &cobra.Command{
		Use:     "connect",
		Short:   "Connect this machine as an environment",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Connects this machine until it is interrupted, over every loss of the network. It dials out, over HTTPS and through the proxy
that HTTPS_PROXY names; nothing dials in. What commands may do here is what the machine's own policy allows and the caller's
grant allows, both. Commands that run when the connector ends go on, and are found when it is started again.`, map[int]string{
			1: "another machine took this one's place", 2: "the machine's policy or set-up is not right", 3: "the environment was removed", 4: "the machine is not enrolled, or has no policy"}),
		Example: "  execwarden connect init\n  execwarden connect check\n  execwarden connect enrol --url https://warden.example.com --token ewe_...\n  execwarden connect",
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			cfg.Version, cfg.Log = boot.Version(), slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
			return connect.Run(cmd.Context(), cfg)
		},
	}
	places(cmd, &cfg)
	cmd.Flags().BoolVar(&verbose, "verbose", false, "tell more on standard error")
	cmd.AddCommand(a.connectInitCommand(), a.connectCheckCommand(), a.connectEnrolCommand())
	return cmd
}

func places(cmd *cobra.Command, cfg *connect.Config) {
	cmd.Flags().StringVar(&cfg.Home, "home", "", "where the connector keeps its identity, receipts and output (default: "+homeHelp+")")
	cmd.Flags().StringVar(&cfg.Policy, "policy", "", "the machine's policy (default: /etc/execwarden/connector.yaml for root, else connector.yaml in the home)")
	cmd.Flags().StringVar(&cfg.Shim, "shim", "", "the shim program (default: beside this one)")
}

const homeHelp = "/var/lib/execwarden-connector for root, else execwarden-connector in the user's state directory"

func (a *app) connectInitCommand() *cobra.Command {
	home, policy := "", ""
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Write this machine's policy, for its owner to change",
		Args:    cobra.NoArgs,
		Long:    exits("Writes a commented policy: what this machine may be used for by whoever it is attached to. One that is there is kept.", map[int]string{1: "there is one already"}),
		Example: "  execwarden connect init",
		RunE: func(*cobra.Command, []string) error {
			path, err := connect.Init(home, policy)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s\n", path)
			fmt.Fprintln(a.err, "look it through, then: execwarden connect check")
			return nil
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "the connector's home (default: "+homeHelp+")")
	cmd.Flags().StringVar(&policy, "policy", "", "the file (default: /etc/execwarden/connector.yaml for root, else connector.yaml in the home)")
	return cmd
}

func (a *app) connectCheckCommand() *cobra.Command {
	var cfg connect.Config
	driver := ""
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show what this machine exposes, and which isolation it really enforces",
		Args:  cobra.NoArgs,
		Long: exits(`Runs a command in its cage, and with driver docker in a container, and shows what held it back: each line was tried, not read
from a setting. It talks to nobody but the machine's Docker engine.`,
			map[int]string{2: "the machine's policy or set-up is not right", 3: "less holds than the policy wants", 4: "there is no policy, or no image"}),
		Example: "  execwarden connect check\n  execwarden connect check --driver docker     # before the machine is enrolled\n  execwarden connect check -o json | jq .isolation",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Driver = environment.Driver(driver)
			m, err := connect.Check(cmd.Context(), cfg)
			if m.Platform == "" {
				return err
			}
			if printErr := a.printer().One(m, func(w io.Writer) { printManifest(w, m) }); printErr != nil {
				return printErr
			}
			return err
		},
	}
	places(cmd, &cfg)
	cmd.Flags().StringVar(&driver, "driver", "", "host or docker (default: that of the environment, once enrolled; host before)")
	return cmd
}

func printManifest(w io.Writer, m environment.Manifest) {
	yes := map[bool]string{true: "yes", false: "NO"}
	fmt.Fprintf(w, "platform       %s\n", m.Platform)
	fmt.Fprintf(w, "no_new_privs   %s\n", yes[m.Isolation.NoNewPrivs])
	fmt.Fprintf(w, "landlock       %s (ABI %d)\n", yes[m.Isolation.Landlock > 0], m.Isolation.Landlock)
	fmt.Fprintf(w, "seccomp        %s\n", yes[m.Isolation.Seccomp])
	fmt.Fprintf(w, "cgroup         %s\n", yes[m.Isolation.Cgroup])
	fmt.Fprintf(w, "container      %s\n", yes[m.Isolation.Container])
	fmt.Fprintf(w, "network        %s; commands are given: %s\n", yes[m.Isolation.Network], m.Network)
	fmt.Fprintf(w, "shell          %s\n", map[bool]string{true: "allowed", false: "not allowed"}[m.Shell])
	fmt.Fprintf(w, "preview        %s\n", or(strings.Join(m.Preview, ", "), "not allowed"))
	fmt.Fprintf(w, "browser        %s\n", map[bool]string{true: "allowed", false: "not allowed"}[m.Browser])
	fmt.Fprintf(w, "containers     %s\n", or(strings.Join(m.Images, ", "), "not allowed"))
	for _, r := range m.Roots {
		fmt.Fprintf(w, "root           %s (%s)\n", r.Path, map[bool]string{true: "read and write", false: "read"}[r.Write])
	}
	for _, p := range m.Programs {
		fmt.Fprintf(w, "program        %s\n", p)
	}
	for _, t := range m.Targets {
		fmt.Fprintf(w, "target         %s\n", t)
	}
	for _, t := range m.PrivateHTTP {
		fmt.Fprintf(w, "private http   %s\n", t)
	}
	fmt.Fprintf(w, "execs          %d at once, of one attachment\nvolumes        %d\n", m.Execs, m.Volumes)
}

func (a *app) connectEnrolCommand() *cobra.Command {
	home, token := "", ""
	cmd := &cobra.Command{
		Use:   "enrol",
		Short: "Enrol this machine with the token that env create printed",
		Args:  cobra.NoArgs,
		Long: exits(`Makes this machine's key, which never leaves it, and has it enrolled. The token is good once; asking again with the same one is
answered the same, so that a lost answer costs nothing. EXECWARDEN_ENROL_TOKEN may hold it in place of --token.`,
			map[int]string{1: "the machine is enrolled already", 3: "the token is not valid, was used before, or is over"}),
		Example: "  execwarden connect enrol --url https://warden.example.com --token ewe_...",
		RunE: func(cmd *cobra.Command, _ []string) error {
			token = or(token, os.Getenv("EXECWARDEN_ENROL_TOKEN"))
			if a.flags.url == "" || token == "" {
				return usage("give --url and --token, as execwarden env create prints them")
			}
			who, err := connect.Enrol(cmd.Context(), home, a.flags.url, token)
			if err != nil {
				return err
			}
			return a.printer().One(who, func(w io.Writer) {
				fmt.Fprintf(w, "enrolled as environment %s (%s) of %s\n", id.Name(who.Environment), who.Driver, who.Server)
			})
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "the connector's home (default: "+homeHelp+")")
	cmd.Flags().StringVar(&token, "token", "", "the token")
	return cmd
}
