// Command runtime runs the lightweight runtime.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/runtime"
)

func main() {
	var cfg struct {
		boot.Program
		runtime.Config
	}
	boot.Main(schemas.Runtime, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return runtime.New(cfg.Config, d) })
}
