// Command toolbroker runs the toolbroker service.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/toolbroker"
)

func main() {
	var cfg struct {
		boot.Program
		toolbroker.Config
	}
	boot.Main(schemas.Toolbroker, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return toolbroker.New(cfg.Config, d) })
}
