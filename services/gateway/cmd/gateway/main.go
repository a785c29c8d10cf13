// Command gateway runs the API and the console.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/gateway"
)

func main() {
	var cfg struct {
		boot.Program
		gateway.Config
	}
	boot.Main(schemas.Gateway, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return gateway.New(cfg.Config, d) })
}
