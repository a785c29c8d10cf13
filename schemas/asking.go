package schemas

import "slices"

// Asking is one RPC: who answers it, and who may ask. The asker's name is the last token of the subject,
// ew.rpc.v1.<service>.<method>.<asker>, and the server lets each user publish only under its own, so the answering
// service knows who asks.
type Asking struct {
	Service Service
	Method  string
	Askers  []Service
}

// Barrier is the method that tells whether an instance has heard the control stream up to a sequence.
const Barrier = "barrier"

// MasterKey is the method that tells under which master key an instance seals.
const MasterKey = "keys_master"

// Each says that every instance of the service answers, not just one.
func (a Asking) Each() bool { return a.Method == Barrier || a.Method == MasterKey }

var askings = []Asking{
	{Agentloop, "run_start", []Service{Webhooks, Gateway}},
	{Agentloop, "run_cancel", []Service{Gateway}},
	{Agentloop, "model_key_set", []Service{Gateway}},
	{Agentloop, "keys_rewrap", []Service{Gateway}},
	{Agentloop, "keys_renew", []Service{Gateway}},
	{Agentloop, MasterKey, []Service{Gateway}},
	{Toolbroker, "connection_define", []Service{Gateway}},
	{Toolbroker, "connection_diff", []Service{Gateway}},
	{Toolbroker, "login_begin", []Service{Gateway}},
	{Toolbroker, "login_look", []Service{Gateway}},
	{Toolbroker, "login_finish", []Service{Gateway}},
	{Toolbroker, "package_import", []Service{Gateway}},
	{Toolbroker, "tools_visible", []Service{Agentloop, Runtime, Gateway}},
	{Toolbroker, "tools_search", []Service{Runtime, Gateway}},
	{Toolbroker, "tool_describe", []Service{Runtime, Gateway}},
	{Toolbroker, "client_list", []Service{Gateway}},
	{Toolbroker, "resource_watch", []Service{Gateway}},
	{Toolbroker, "types_show", []Service{Gateway}},
	{Toolbroker, "access_show", []Service{Gateway}},
	{Toolbroker, "grant_simulate", []Service{Gateway}},
	{Toolbroker, "visit_admit", []Service{Gateway}},
	{Toolbroker, Barrier, []Service{Gateway, Approvals, Environments}},
	{Runtime, "artifacts_list", []Service{Gateway}},
	{Runtime, "artifact_get", []Service{Gateway}},
	{Runtime, Barrier, []Service{Gateway, Approvals, Environments}},
	{Environments, Barrier, []Service{Gateway, Approvals, Environments}},
	{Toolbroker, "edit_check", []Service{Approvals}},
	{Toolbroker, "keys_rewrap", []Service{Gateway}},
	{Toolbroker, "keys_renew", []Service{Gateway}},
	{Toolbroker, MasterKey, []Service{Gateway}},
	{Approvals, "grant_create", []Service{Gateway}},
	{Approvals, "grant_revoke", []Service{Gateway}},
	{Approvals, "target_define", []Service{Gateway}},
	{Approvals, "target_test", []Service{Gateway}},
	{Approvals, "keys_rewrap", []Service{Gateway}},
	{Approvals, "keys_renew", []Service{Gateway}},
	{Approvals, MasterKey, []Service{Gateway}},
	{Approvals, "approval_decide", []Service{Gateway}},
	{Approvals, "approval_edit", []Service{Gateway}},
	{Approvals, "approval_list", []Service{Gateway}},
	{Approvals, "approval_show", []Service{Gateway}},
	{Approvals, "approval_withdraw", []Service{Gateway}},
	{Approvals, Barrier, []Service{Gateway}},
	{Gateway, Barrier, []Service{Gateway}},
	{Webhooks, "trigger_define", []Service{Gateway}},
	{Webhooks, "hook_define", []Service{Gateway}},
	{Webhooks, "keys_rewrap", []Service{Gateway}},
	{Webhooks, "keys_renew", []Service{Gateway}},
	{Webhooks, MasterKey, []Service{Gateway}},
	{Environments, "environment_define", []Service{Gateway}},
	{Environments, "environment_list", []Service{Gateway}},
	{Environments, "environment_remove", []Service{Gateway}},
	{Environments, "environment_drain", []Service{Gateway}},
	{Environments, "enrolment_create", []Service{Gateway}},
	{Environments, "connector_enrol", []Service{Gateway}},
	{Environments, "output_read", []Service{Gateway}},
	{Environments, "visit_open", []Service{Gateway}},
	{Environments, "volume_attach", []Service{Gateway}},
	{Environments, "volume_release", []Service{Gateway}},
	{Environments, "volume_checkpoint", []Service{Gateway}},
	{Environments, "volume_restore", []Service{Gateway}},
	{Environments, "volume_clone", []Service{Gateway}},
	{Ledger, "events", []Service{Gateway}},
	{Ledger, "runs", []Service{Gateway}},
	{Ledger, "timeline", []Service{Gateway}},
	{Ledger, "verify", []Service{Gateway}},
	{Ledger, "position", []Service{Gateway}},
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

// Keepers lists the services that keep secrets.
func Keepers() (out []Service) {
	for _, a := range askings {
		if a.Method == "keys_rewrap" {
			out = append(out, a.Service)
		}
	}
	return out
}
