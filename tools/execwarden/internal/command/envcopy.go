package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// copying makes a command that copies a volume on its machine.
func (a *app) copying(cmd *cobra.Command, of *client.VolumeCopy, do func(*client.Client, context.Context, string, client.VolumeCopy) (volume.Defined, error), say func(io.Writer, volume.Defined)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, c, done, err := a.asking(cmd.Context(), "copying the volume", 0)
		if err != nil {
			return err
		}
		defer done()
		v, err := do(c, ctx, args[0], *of)
		if err != nil {
			return err
		}
		return a.printer().One(v, func(w io.Writer) { say(w, v) })
	}
	cmd.Flags().StringVar(&of.Volume, "volume", "", "its name (default: main)")
	return cmd
}

func (a *app) envCheckpointCommand() *cobra.Command {
	var of client.VolumeCopy
	return a.copying(&cobra.Command{
		Use:   "checkpoint NAME",
		Short: "Keep what a volume holds at this moment, on its machine",
		Long: exits(`Keeps every file of a volume with a manifest of paths, modes, sizes and SHA-256, whose own hash is recorded. Nothing may run on the
volume meanwhile. The machine keeps as many as its policy says; the oldest goes.`, map[int]string{1: "commands run on it", 3: "the machine keeps none", 4: "there is no such environment or volume"}),
		Example: "  execwarden env checkpoint builder --volume web",
	}, &of, (*client.Client).CheckpointVolume, func(w io.Writer, v volume.Defined) {
		if len(v.Checkpoints) > 0 {
			c := v.Checkpoints[len(v.Checkpoints)-1]
			fmt.Fprintf(w, "checkpoint %d of volume %s: %s, %d bytes, manifest %s\n", c.Generation, v.Name, render.Count(c.Files, "file"), c.Bytes, c.Manifest)
		}
	})
}

func (a *app) envRestoreCommand() *cobra.Command {
	var of client.VolumeCopy
	cmd := a.copying(&cobra.Command{
		Use:   "restore NAME",
		Short: "Bring a checkpoint of a volume back",
		Long: exits(`Compares every file of a checkpoint with its manifest, and that with what was recorded, and then puts it in the place of what the volume
holds, at one moment. Nobody may hold the volume.`, map[int]string{1: "the volume is attached, or the checkpoint is damaged; the volume is as it was", 4: "there is no such environment, volume or checkpoint"}),
		Example: "  execwarden env volumes                               # lists checkpoints\n  execwarden env restore builder --volume web --checkpoint 3",
	}, &of, (*client.Client).RestoreVolume, func(w io.Writer, v volume.Defined) {
		fmt.Fprintf(w, "volume %s is as it was at checkpoint %d\n", v.Name, of.Checkpoint)
	})
	cmd.Flags().IntVar(&of.Checkpoint, "checkpoint", 0, "its number")
	_ = cmd.MarkFlagRequired("checkpoint") // the flag is there
	return cmd
}

func (a *app) envCloneCommand() *cobra.Command {
	var of client.VolumeCopy
	cmd := a.copying(&cobra.Command{
		Use:     "clone NAME",
		Short:   "Make a volume that holds what another does",
		Long:    exits("Copies a volume on its machine, every file compared. Nothing may run on it meanwhile.", map[int]string{1: "commands run on it, or there is a volume of the new name", 4: "there is no such environment or volume"}),
		Example: "  execwarden env clone builder --volume web --to web-two",
	}, &of, (*client.Client).CloneVolume, func(w io.Writer, v volume.Defined) {
		fmt.Fprintf(w, "volume %s holds what volume %s does\n", v.Name, v.From)
	})
	cmd.Flags().StringVar(&of.To, "to", "", "the new volume's name")
	_ = cmd.MarkFlagRequired("to") // the flag is there
	return cmd
}
