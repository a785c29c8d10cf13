// Command agentloop runs the agentloop service.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/agentloop"
)

func main() {
	var cfg struct {
		boot.Program
		agentloop.Config
	}
	boot.Main(schemas.Agentloop, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return agentloop.New(cfg.Config, d) })
}
