// Command environments runs the environments service.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/environments"
)

func main() {
	var cfg struct {
		boot.Program
		environments.Config
	}
	boot.Main(schemas.Environments, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return environments.New(cfg.Config, d) })
}
