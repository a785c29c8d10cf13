// Command approvals runs the approval service.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/approvals"
)

func main() {
	var cfg struct {
		boot.Program
		approvals.Config
	}
	boot.Main(schemas.Approvals, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return approvals.New(cfg.Config, d) })
}
