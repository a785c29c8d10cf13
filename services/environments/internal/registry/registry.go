// Package registry keeps what EW_CONTROL says of environments, their connectors and their volumes.
package registry

import (
	"slices"
	"sync"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
	"github.com/execwarden/execwarden/schemas/volume"
)

// Registry is the state of every tenant. Its zero value is ready.
type Registry struct {
	Environments eventlog.Latest[environment.Registered]
	Connectors   eventlog.Latest[connector.Welcomed]
	Volumes      eventlog.Latest[volume.Defined]
	keys         eventlog.Latest[key.Published]

	mu    sync.RWMutex
	byKey map[string]Place // by public NKey
}

// Place is an environment of a tenant.
type Place struct {
	Tenant      id.Tenant
	Environment id.Environment
}

// Kinds lists what Apply takes.
func Kinds() []string {
	return []string{environment.Registered{}.Kind(), connector.Welcomed{}.Kind(), volume.Defined{}.Kind(), key.Published{}.Kind()}
}

// Apply takes one event, as a view gives it.
func (r *Registry) Apply(e eventlog.Stored) {
	r.Environments.Apply(e)
	r.Connectors.Apply(e)
	r.Volumes.Apply(e)
	r.keys.Apply(e)
	if e.At.Kind() != (environment.Registered{}).Kind() {
		return
	}
	now, ok := r.Environments.Get(e.At.Tenant, e.At.Key)
	if !ok || now.Connector == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = map[string]Place{}
	}
	// An identity that was replaced stays here, and is looked up in vain: ByKey asks whose it is now.
	r.byKey[now.Connector.NKey] = Place{e.At.Tenant, now.Environment}
}

// Environment gives an environment that is there, with its sequence.
func (r *Registry) Environment(p Place) (environment.Registered, uint64, bool) {
	e, seq := r.Environments.Version(p.Tenant, string(p.Environment))
	return e, seq, seq > 0 && !e.Removed
}

// ByKey finds the environment whose connector has that NKey.
func (r *Registry) ByKey(nkey string) (Place, bool) {
	r.mu.RLock()
	p, ok := r.byKey[nkey]
	r.mu.RUnlock()
	if !ok {
		return Place{}, false
	}
	e, _, there := r.Environment(p)
	return p, there && e.Connector != nil && e.Connector.NKey == nkey
}

// Keys lists the published keys of the deployment.
func (r *Registry) Keys() (out []key.Published) {
	for _, t := range r.keys.Tenants() {
		out = append(out, r.keys.All(t)...)
	}
	return out
}

// VolumeID is the id of the volume of that name on an environment.
func VolumeID(p Place, name string) id.Volume {
	return id.Derive[id.Volume](string(p.Tenant), string(p.Environment), name)
}

// VolumesOf lists the volumes of an environment.
func (r *Registry) VolumesOf(p Place) []volume.Defined {
	return slices.DeleteFunc(r.Volumes.All(p.Tenant), func(v volume.Defined) bool {
		return v.Environment != p.Environment || v.Removed
	})
}

// Attached finds the volume that a call works on.
func (r *Registry) Attached(tenant id.Tenant, run id.Run, session id.Session, agent id.Agent) (volume.Defined, bool) {
	return volume.For(r.Volumes.All(tenant), run, session, agent)
}

// Leases lists what is attached to an environment.
func (r *Registry) Leases(p Place) []connector.Lease {
	out := []connector.Lease{}
	for _, v := range r.VolumesOf(p) {
		if v.Attached != nil {
			out = append(out, connector.Lease{Attachment: v.Attached.Attachment, Volume: v.Name, Epoch: v.Epoch, Draining: v.Attached.Draining})
		}
	}
	return out
}
