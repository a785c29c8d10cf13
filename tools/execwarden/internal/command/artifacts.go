package command

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) artifactsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "artifacts",
		Short:   "List and read what scripts keep for their session",
		GroupID: groupWork,
	}
	cmd.AddCommand(a.artifactsListCommand(), a.artifactsGetCommand())
	return cmd
}

func (a *app) artifactsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list SESSION",
		Short: "List the artifacts of a session",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Lists what the scripts of a session keep: names, types and sizes. SESSION is the session's id, that of one of its
runs, or of an external agent's conversation.`, nil),
		Example: "  execwarden artifacts list run_0197f0c2...\n  execwarden artifacts list ses_7a1b2c3d... -o jsonl | jq -r .name",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking for artifacts", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			there, err := c.Artifacts(ctx, args[0])
			if err != nil {
				return err
			}
			if f := a.flags.output; f == render.JSON || f == render.YAML {
				return a.printer().Value(there)
			}
			return render.List(a.printer(), "artifacts", there.Artifacts, artifactGrid)
		},
	}
}

func artifactGrid(list []ask.Artifact) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "NAME"}, {Name: "TYPE"}, {Name: "BYTES"}, {Name: "KEPT"}, {Name: "TAINT"}, {Name: "RUN", Wide: true}, {Name: "SHA-256", Wide: true}}}
	for _, k := range list {
		g.Row(render.Text(k.Name), render.Text(string(k.Type)), render.Text(strconv.Itoa(k.Size)), render.Text(render.Stamp(k.KeptAt)),
			render.Text(strings.Join(k.Taint, " ")), render.Text(string(k.Run)), render.Text(k.Digest))
	}
	return g
}

func (a *app) artifactsGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get SESSION NAME",
		Short: "Write an artifact to standard output",
		Args:  cobra.ExactArgs(2),
		Long: exits(`Writes an artifact as it is to standard output, whatever -o says. A script wrote it: at a terminal, characters that
would act on it are spelt out, and bytes that are no text are not shown.`, map[int]string{4: "there is no such artifact"}),
		Example: "  execwarden artifacts get run_0197f0c2... report.md\n  execwarden artifacts get ses_7a1b2c3d... chart.png > chart.png",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking for the artifact", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			value, kind, err := c.Artifact(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return writeArtifact(a.out, terminal(a.out), value, kind)
		},
	}
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func writeArtifact(w io.Writer, terminal bool, value []byte, kind string) error {
	if terminal {
		if kind == "application/octet-stream" {
			return usage("the artifact is %d bytes that are no text; send them to a file: > FILE", len(value))
		}
		value = []byte(render.Visible(string(value)))
	}
	if _, err := w.Write(value); err != nil {
		return problem.Wrap(err, problem.Internal, "the artifact cannot be written")
	}
	return nil
}
