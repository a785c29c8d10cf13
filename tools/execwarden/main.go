// Command execwarden is ExecWarden's command line.
package main

import (
	"os"

	"github.com/execwarden/execwarden/tools/execwarden/internal/cluster"
	"github.com/execwarden/execwarden/tools/execwarden/internal/command"
	"github.com/execwarden/execwarden/tools/execwarden/internal/up"
)

func main() { os.Exit(command.Main(up.Command(), cluster.Command())) }
