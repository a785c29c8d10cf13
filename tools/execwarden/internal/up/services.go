package up

import (
	"context"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/agentloop"
	"github.com/execwarden/execwarden/services/approvals"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/services/gateway"
	"github.com/execwarden/execwarden/services/ledger"
	"github.com/execwarden/execwarden/services/runtime"
	"github.com/execwarden/execwarden/services/toolbroker"
	"github.com/execwarden/execwarden/services/webhooks"
)

// running is a service with its connection.
type running struct {
	boot.Service
	name schemas.Service
	conn *bus.Conn
}

// services makes the eight services, with the settings that differ from their defaults, and the way to learn where
// those listen that do.
func (p *process) services(ctx context.Context) (all []running, addresses func(context.Context) (Endpoints, error), err error) {
	var api *gateway.Service
	var hooks *webhooks.Service
	starts := map[schemas.Service]func(boot.Deps) (boot.Service, error){
		schemas.Agentloop: func(d boot.Deps) (boot.Service, error) {
			return configured(&agentloop.Config{}, func(*agentloop.Config) {}, agentloop.New, d)
		},
		schemas.Runtime: func(d boot.Deps) (boot.Service, error) {
			return configured(&runtime.Config{}, func(c *runtime.Config) {
				c.WorkerPath, c.WorkerDigest, c.AllowWeak, c.FetchDeny = p.cfg.WorkerPath, workerDigest, p.cfg.AllowWeak, p.cfg.ownHosts(machineAddresses())
			}, runtime.New, d)
		},
		schemas.Toolbroker: func(d boot.Deps) (boot.Service, error) {
			return configured(&toolbroker.Config{}, func(c *toolbroker.Config) {
				c.RootSigningKeyFile, c.StdioFile = p.dir.file("root.key"), p.cfg.StdioFile
			}, toolbroker.New, d)
		},
		schemas.Approvals: func(d boot.Deps) (boot.Service, error) {
			return configured(&approvals.Config{}, func(c *approvals.Config) {
				c.ApprovalLife, c.ConsoleURL, c.SMTP = p.cfg.ApprovalLife, p.cfg.consoleURL(), p.cfg.SMTP
			}, approvals.New, d)
		},
		schemas.Environments: func(d boot.Deps) (boot.Service, error) {
			return configured(&environments.Config{}, func(c *environments.Config) {
				c.CalloutSeed = vault.NewSecret(p.server.CalloutSeed())
				if p.cfg.machines != nil {
					p.cfg.machines(c)
				}
			}, environments.New, d)
		},
		schemas.Ledger: func(d boot.Deps) (boot.Service, error) {
			return configured(&ledger.Config{}, func(c *ledger.Config) {
				c.PostgresURL, c.SigningKeyFile = p.database.url, p.dir.file("ledger.key")
			}, ledger.New, d)
		},
		schemas.Gateway: func(d boot.Deps) (s boot.Service, err error) {
			api, err = configured(&gateway.Config{}, func(c *gateway.Config) {
				c.Listen, c.PublicURL, c.OwnerTokenFile = p.cfg.Listen, p.cfg.PublicURL, p.dir.file(ownerTokenFile)
				c.ConnectorsURL = p.server.WebsocketURL()
				c.IssuersFile, c.ClientPrivate, c.MCPRate, c.MCPBurst = p.cfg.IssuersFile, p.cfg.Documents, p.cfg.MCPRate, p.cfg.MCPBurst
				if p.cfg.gateway != nil {
					p.cfg.gateway(c)
				}
			}, gateway.New, d)
			return api, err
		},
		schemas.Webhooks: func(d boot.Deps) (s boot.Service, err error) {
			hooks, err = configured(&webhooks.Config{}, func(c *webhooks.Config) { c.Listen = p.cfg.HooksListen }, webhooks.New, d)
			return hooks, err
		},
	}
	for _, name := range schemas.Services() {
		deps, err := p.deps(ctx, name)
		if err != nil {
			return all, nil, err
		}
		s, err := starts[name](deps)
		if err != nil {
			deps.Conn.Close()
			return all, nil, err
		}
		all = append(all, running{s, name, deps.Conn})
	}
	return all, func(ctx context.Context) (e Endpoints, err error) {
		apiAddr, err := api.Addr(ctx)
		if err != nil {
			return e, err
		}
		hooksAddr, err := hooks.Addr(ctx)
		if err != nil {
			return e, err
		}
		return Endpoints{API: "http://" + apiAddr.String(), Hooks: "http://" + hooksAddr.String()}, nil
	}, nil
}

// configured makes a service with the documented defaults of its settings, changed by change.
func configured[C, S any](cfg *C, change func(*C), start func(C, boot.Deps) (S, error), d boot.Deps) (S, error) {
	if err := boot.Defaults(cfg); err != nil {
		var none S
		return none, err
	}
	change(cfg)
	return start(*cfg, d)
}
