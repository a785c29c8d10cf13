package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// ServiceKeys is how the keys stand of one service that keeps secrets.
type ServiceKeys struct {
	Service schemas.Service `json:"service"`
	ask.Rewrapped
}

// RewrapKeys has a service seal anew what is not sealed under the newest keys, or only count it, for a page of tenants.
func (c *Client) RewrapKeys(ctx context.Context, s schemas.Service, after id.Tenant, look bool) (ask.Rewrapped, error) {
	return send[ask.Rewrapped](ctx, c, http.MethodPost, "/v1/keys/rewrap", nil, struct {
		Service schemas.Service `json:"service"`
		After   id.Tenant       `json:"after,omitempty"`
		Look    bool            `json:"look,omitempty"`
	}{s, after, look})
}

// RenewKeys has a service give the token's tenant a new key.
func (c *Client) RenewKeys(ctx context.Context, s schemas.Service) (ask.Rewrapped, error) {
	return send[ask.Rewrapped](ctx, c, http.MethodPost, "/v1/keys/renew", nil, struct {
		Service schemas.Service `json:"service"`
	}{s})
}

// MasterKeys says under which master key each instance seals that keeps secrets.
func (c *Client) MasterKeys(ctx context.Context) ([]ask.InstanceKey, error) {
	list, err := get[struct {
		Instances []ask.InstanceKey `json:"instances"`
	}](ctx, c, "/v1/keys", nil)
	return list.Instances, err
}

// AllKeys is RewrapKeys for every service and every tenant. told hears of each page.
func (c *Client) AllKeys(ctx context.Context, look bool, told func(ServiceKeys)) ([]ServiceKeys, error) {
	var all []ServiceKeys
	for _, s := range schemas.Keepers() {
		sum := ServiceKeys{Service: s}
		for {
			page, err := c.RewrapKeys(ctx, s, sum.Next, look)
			if err != nil {
				return all, err
			}
			if sum.Key != "" && sum.Key != page.Key {
				sum = ServiceKeys{Service: s} // it changed on the way: what was counted was under another key
				continue
			}
			sum.Key, sum.Next = page.Key, page.Next
			sum.Tenants += page.Tenants
			sum.Keys += page.Keys
			sum.Resealed += page.Resealed
			sum.Remaining += page.Remaining
			if sum.Reason == "" {
				sum.Reason = page.Reason
			}
			told(sum)
			if page.Next == "" {
				break
			}
		}
		all = append(all, sum)
	}
	return all, nil
}
