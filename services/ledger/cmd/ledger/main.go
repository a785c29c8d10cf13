// Command ledger runs the activity ledger.
package main

import (
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/ledger"
)

func main() {
	var cfg struct {
		boot.Program
		ledger.Config
	}
	boot.Main(schemas.Ledger, &cfg.Program, &cfg, func(d boot.Deps) (boot.Service, error) { return ledger.New(cfg.Config, d) })
}
