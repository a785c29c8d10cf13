package schemas

import "slices"

// Asking is one RPC: who answers it, and who may ask. The asker's name is the last token of the subject,
// ew.rpc.v1.<service>.<method>.<asker>, and the server lets each user publish only under its own, so the answering
// service knows who asks.
type Asking struct {
	Service Service
	Method  string
	Askers  []Service
	Each    bool // every instance of the service answers, not just one
}

var askings = []Asking{
	{Agentloop, "run_start", []Service{Webhooks, Gateway}, false},
	{Agentloop, "run_cancel", []Service{Gateway}, false},
	{Agentloop, "model_key_set", []Service{Gateway}, false},
	{Toolbroker, "connection_define", []Service{Gateway}, false},
	{Toolbroker, "package_import", []Service{Gateway}, false},
	{Toolbroker, "tools_visible", []Service{Agentloop, Runtime, Gateway}, false},
	{Toolbroker, "access_show", []Service{Gateway}, false},
	{Toolbroker, "grant_simulate", []Service{Gateway}, false},
	{Toolbroker, "barrier", []Service{Gateway, Approvals}, true},
	{Runtime, "barrier", []Service{Gateway, Approvals}, true},
	{Environments, "barrier", []Service{Gateway, Approvals}, true},
	{Approvals, "grant_create", []Service{Gateway}, false},
	{Approvals, "grant_revoke", []Service{Gateway}, false},
	{Approvals, "approval_decide", []Service{Gateway}, false},
	{Approvals, "approval_list", []Service{Gateway}, false},
	{Webhooks, "trigger_define", []Service{Gateway}, false},
	{Webhooks, "hook_define", []Service{Gateway}, false},
	{Environments, "environment_define", []Service{Gateway}, false},
	{Ledger, "events", []Service{Gateway}, false},
	{Ledger, "runs", []Service{Gateway}, false},
	{Ledger, "timeline", []Service{Gateway}, false},
	{Ledger, "verify", []Service{Gateway}, false},
	{Ledger, "position", []Service{Gateway}, false},
}

// Askings lists every RPC.
func Askings() []Asking { return slices.Clone(askings) }

// FindAsking returns an RPC of the catalogue.
func FindAsking(s Service, method string) (Asking, bool) {
	i := slices.IndexFunc(askings, func(a Asking) bool { return a.Service == s && a.Method == method })
	if i < 0 {
		return Asking{}, false
	}
	return askings[i], true
}
