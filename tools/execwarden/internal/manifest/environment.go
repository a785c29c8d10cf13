package manifest

import (
	"context"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

type environmentFields struct {
	Header `yaml:",inline"`
	Driver environment.Driver `yaml:"driver"`
}

func buildEnvironment(d *document) (r Resource) {
	f, ok := fields[environmentFields](d)
	if !ok {
		return r
	}
	def := environment.Registered{Environment: named[id.Environment](d), Driver: f.Driver}
	if f.Driver != environment.Host && f.Driver != environment.Docker {
		d.fault("$.driver", "driver %.40q is not host or docker", f.Driver)
	}
	r.Want = def
	r.put = func(ctx context.Context, api *client.Client, _ string) error {
		return api.PutEnvironment(ctx, def.Environment, def.Driver)
	}
	return r
}
