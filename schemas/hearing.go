package schemas

import (
	"slices"
	"strconv"
)

// Hearing is one durable consumer: a service's ear for one filter of one stream. The boot user makes them all, since
// whoever may create a consumer can make one that pushes into another service's subjects.
type Hearing struct {
	Service Service
	Name    string // the durable's name
	Stream  Stream
	Filter  string
	Apart   bool // messages of one aggregate are heard at once: calls of one run do not wait for each other
	View    bool // a projection: starts from the last event per subject, is never acknowledged, and can be rewound
}

// MaxViews is how many instances of one service can have a view at once.
const MaxViews = 16

// Views lists the names of a view's durables: each instance of the service has one of its own, since each has to hear
// everything.
func (h Hearing) Views() []string {
	names := make([]string, MaxViews)
	for i := range names {
		names[i] = h.Name + "_" + strconv.Itoa(i)
	}
	return names
}

var hearings = []Hearing{
	{Webhooks, "webhooks_hook", Activity, "ew.v1.*.hook.*.received", false, false},
	{Agentloop, "agentloop_run", Activity, "ew.v1.*.run.>", false, false},
	{Agentloop, "agentloop_call", Activity, "ew.v1.*.call.>", false, false},
	{Toolbroker, "toolbroker_requested", Activity, "ew.v1.*.call.*.requested", false, false},
	{Toolbroker, "toolbroker_approval", Activity, "ew.v1.*.approval.>", false, false},
	{Toolbroker, "toolbroker_admitted", Activity, "ew.v1.*.call.*.admitted.upstream", true, false},
	{Toolbroker, "toolbroker_connection", Control, "ew.v1.*.connection.*.defined", false, false},
	{Approvals, "approvals_held", Activity, "ew.v1.*.call.*.held", false, false},
	{Approvals, "approvals_cancelled", Activity, "ew.v1.*.run.*.cancelled", false, false},
	{Approvals, "approvals_notice", Activity, "ew.v1.*.approval.>", false, false},
	{Runtime, "runtime_admitted", Activity, "ew.v1.*.call.*.admitted.script", true, false},
	{Environments, "environments_admitted", Activity, "ew.v1.*.call.*.admitted.exec", true, false},

	{Webhooks, "webhooks_view", Control, "ew.v1.>", false, true},
	{Gateway, "gateway_view", Control, "ew.v1.>", false, true},
	{Agentloop, "agentloop_view", Control, "ew.v1.>", false, true},
	{Toolbroker, "toolbroker_view", Control, "ew.v1.>", false, true},
	{Approvals, "approvals_view", Control, "ew.v1.>", false, true},
	{Runtime, "runtime_view", Control, "ew.v1.>", false, true},
	{Environments, "environments_view", Control, "ew.v1.>", false, true},
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
