package ask

import "github.com/execwarden/execwarden/schemas/id"

// Rewrap asks a service that keeps secrets to seal anew what is not sealed under the newest keys, for a page of
// tenants. Look only counts.
type Rewrap struct {
	After id.Tenant `json:"after,omitempty"` // the tenant that the page before ended with
	Look  bool      `json:"look,omitempty"`
}

// Rewrapped is how keys stand after a Rewrap, for the tenants that it was about.
type Rewrapped struct {
	Key       string    `json:"key"`              // names the master key that seals now
	Tenants   int       `json:"tenants"`          // that have secrets here
	Keys      int       `json:"rewrapped"`        // tenants' keys sealed under Key by this
	Resealed  int       `json:"resealed"`         // secrets sealed under their tenant's newest key by this
	Remaining int       `json:"remaining"`        // what is still sealed under an earlier key
	Reason    string    `json:"reason,omitempty"` // why the first of them is
	Next      id.Tenant `json:"next,omitempty"`   // there are tenants after this one
}

// RenewKeys asks a service that keeps secrets to give the caller's tenant a new key.
type RenewKeys struct{}

// MasterKey asks an instance under which master key it seals.
type MasterKey struct{}

// MasterKeyName is the answer. The name tells keys apart and opens nothing.
type MasterKeyName struct {
	Key string `json:"key"`
}

// InstanceKey is under which master key an instance of a service that keeps secrets seals.
type InstanceKey struct {
	Service  string `json:"service"`
	Instance string `json:"instance,omitempty"`
	Key      string `json:"key,omitempty"`
	Reason   string `json:"reason,omitempty"` // why that is not known
}
