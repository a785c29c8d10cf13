package schemas

import "slices"

// Hearing is one durable consumer: a service's ear for one filter of one stream. The boot user makes them all, since
// whoever may create a consumer can make one that pushes into another service's subjects.
type Hearing struct {
	Service Service
	Name    string // the durable's name
	Stream  Stream
	Filter  string
	View    bool // a projection: starts from the last event per subject, is never acknowledged, and can be rewound
}

var hearings = []Hearing{
	{Webhooks, "webhooks_hook", Activity, "ew.v1.*.hook.*.received", false},
	{Agentloop, "agentloop_run", Activity, "ew.v1.*.run.>", false},
	{Agentloop, "agentloop_call", Activity, "ew.v1.*.call.>", false},
	{Toolbroker, "toolbroker_requested", Activity, "ew.v1.*.call.*.requested", false},
	{Toolbroker, "toolbroker_approval", Activity, "ew.v1.*.approval.>", false},
	{Toolbroker, "toolbroker_admitted", Activity, "ew.v1.*.call.*.admitted.upstream", false},
	{Toolbroker, "toolbroker_connection", Control, "ew.v1.*.connection.*.defined", false},
	{Approvals, "approvals_held", Activity, "ew.v1.*.call.*.held", false},
	{Runtime, "runtime_admitted", Activity, "ew.v1.*.call.*.admitted.script", false},
	{Environments, "environments_admitted", Activity, "ew.v1.*.call.*.admitted.exec", false},

	{Webhooks, "webhooks_view", Control, "ew.v1.>", true},
	{Gateway, "gateway_view", Control, "ew.v1.>", true},
	{Agentloop, "agentloop_view", Control, "ew.v1.>", true},
	{Toolbroker, "toolbroker_view", Control, "ew.v1.>", true},
	{Approvals, "approvals_view", Control, "ew.v1.>", true},
	{Runtime, "runtime_view", Control, "ew.v1.>", true},
	{Environments, "environments_view", Control, "ew.v1.>", true},
}

// Hearings lists every durable consumer.
func Hearings() []Hearing { return slices.Clone(hearings) }

// FindHearing returns the durable of that name. It panics when there is none: a fault of the program.
func FindHearing(name string) Hearing {
	i := slices.IndexFunc(hearings, func(h Hearing) bool { return h.Name == name })
	if i < 0 {
		panic("schemas: no durable is named " + name)
	}
	return hearings[i]
}
