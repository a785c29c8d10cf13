package command

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/boot"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Args:    cobra.NoArgs,
		Long:    "Shows the version of this program, the Go release that built it, and its platform. It asks no server.\n\nExit codes:\n  0    ok\n  2    usage",
		Example: "  execwarden version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{boot.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.printer().One(v, func(w io.Writer) { fmt.Fprintf(w, "execwarden %s %s %s\n", v.Version, v.Go, v.Platform) })
		},
	}
}
