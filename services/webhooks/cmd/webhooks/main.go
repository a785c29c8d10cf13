// Command webhooks runs the webhooks service.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/webhooks"
)

func main() {
	var cfg struct {
		boot.Program
		webhooks.Config
	}
	boot.Main(schemas.Webhooks, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return webhooks.New(cfg.Config, d) })
}
