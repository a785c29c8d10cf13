package schemas

import (
	"reflect"
	"slices"
	"time"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/hook"
	"github.com/execwarden/execwarden/schemas/key"
	"github.com/execwarden/execwarden/schemas/ledger"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/schemas/session"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/schemas/tenant"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/schemas/volume"
)

// Event is the data of one kind of message. It names itself, so that code may be renamed without breaking what is
// stored.
type Event interface{ Kind() string }

// Service is one of the eight services.
type Service string

// The services.
const (
	Agentloop    Service = "agentloop"
	Runtime      Service = "runtime"
	Toolbroker   Service = "toolbroker"
	Approvals    Service = "approvals"
	Environments Service = "environments"
	Ledger       Service = "ledger"
	Gateway      Service = "gateway"
	Webhooks     Service = "webhooks"
)

// Services lists the services in the order in which a call meets them.
func Services() []Service {
	return []Service{Webhooks, Gateway, Agentloop, Toolbroker, Approvals, Runtime, Environments, Ledger}
}

// Stream is a JetStream stream that holds events.
type Stream string

// The event streams.
const (
	Control  Stream = "EW_CONTROL"  // what is configured; each event carries the full new state
	Activity Stream = "EW_ACTIVITY" // what happens
	Proofs   Stream = "EW_PROOFS"   // checkpoints, outside every tree
)

// Retention is how long a stream keeps an event. Zero is for ever.
func (s Stream) Retention() time.Duration {
	if s == Activity {
		return 30 * 24 * time.Hour
	}
	return 0
}

// Entry is one kind of event: the only place that says where it goes, who may say it, and in which version.
type Entry struct {
	Kind    string
	Version int
	Stream  Stream
	Ordered bool      // the aggregate is always appended with an expected sequence (CAS)
	Jointly bool      // all things of the noun in a tenant are one aggregate: a rule spans them
	Says    []Service // who may say it
	Routes  []call.Route
	Type    reflect.Type
}

var (
	executor = []call.Route{call.Upstream, call.Script, call.Exec}
	executes = []Service{Toolbroker, Runtime, Environments}
)

// catalogue lists every kind in the order in which things happen.
var catalogue = []Entry{
	entry[tenant.Created](1, Control, false, nil, Gateway),
	jointly(entry[member.Added](1, Control, true, nil, Gateway)),
	jointly(entry[member.Removed](1, Control, true, nil, Gateway)),
	entry[token.Issued](1, Control, false, nil, Gateway),
	entry[token.Revoked](1, Control, false, nil, Gateway),
	entry[token.Tainted](1, Control, false, nil, Gateway),
	entry[key.Published](1, Control, false, nil, Toolbroker),
	entry[agent.Defined](1, Control, false, nil, Gateway),
	entry[client.Defined](1, Control, false, nil, Gateway),
	entry[connection.Defined](1, Control, false, nil, Toolbroker),
	entry[connection.LoginChanged](1, Control, false, nil, Toolbroker),
	entry[connection.Packaged](1, Control, false, nil, Toolbroker),
	entry[connection.Listed](1, Control, false, nil, Toolbroker),
	entry[grant.Created](1, Control, true, nil, Approvals),
	entry[grant.Revoked](1, Control, true, nil, Approvals),
	entry[trigger.Defined](1, Control, false, nil, Webhooks),
	entry[environment.Registered](1, Control, true, nil, Environments),
	entry[connector.Welcomed](1, Control, true, nil, Environments),
	entry[volume.Defined](1, Control, true, nil, Environments),
	entry[target.Defined](1, Control, false, nil, Approvals),
	entry[session.Opened](1, Control, false, nil, Agentloop),

	entry[hook.Received](1, Activity, true, nil, Webhooks),
	entry[hook.Routed](1, Activity, true, nil, Webhooks),
	entry[hook.Ignored](1, Activity, true, nil, Webhooks),

	entry[run.Created](1, Activity, true, nil, Agentloop),
	entry[run.ModelRequested](1, Activity, true, nil, Agentloop),
	entry[run.ModelCompleted](1, Activity, true, nil, Agentloop),
	entry[run.ModelFailed](1, Activity, true, nil, Agentloop),
	entry[run.CancelRequested](1, Activity, true, nil, Agentloop),
	entry[run.Completed](1, Activity, true, nil, Agentloop),
	entry[run.Failed](1, Activity, true, nil, Agentloop),
	entry[run.Cancelled](1, Activity, true, nil, Agentloop),

	entry[call.Requested](1, Activity, false, nil, Agentloop, Runtime, Gateway),
	entry[call.Held](1, Activity, false, nil, Toolbroker),
	entry[call.Admitted](1, Activity, false, executor, Toolbroker),
	entry[call.Refused](1, Activity, false, nil, Toolbroker),
	entry[call.Asked](1, Activity, false, nil, Toolbroker),
	entry[call.Answered](1, Activity, false, nil, Toolbroker),
	entry[call.Finished](1, Activity, false, executor, executes...),
	entry[call.Failed](1, Activity, false, executor, executes...),
	entry[call.Cancelled](1, Activity, false, executor, executes...),
	entry[call.Unknown](1, Activity, false, executor, executes...),
	entry[call.Late](1, Activity, false, executor, executes...),

	entry[approval.Requested](1, Activity, true, nil, Approvals),
	entry[approval.Edited](1, Activity, true, nil, Approvals),
	entry[approval.Voted](1, Activity, true, nil, Approvals),
	entry[approval.Escalated](1, Activity, true, nil, Approvals),
	entry[approval.Decided](1, Activity, true, nil, Approvals),
	entry[approval.Expired](1, Activity, true, nil, Approvals),

	entry[notice.Queued](1, Activity, false, nil, Approvals),
	entry[notice.Retried](1, Activity, false, nil, Approvals),
	entry[notice.Sent](1, Activity, false, nil, Approvals),
	entry[notice.Failed](1, Activity, false, nil, Approvals),

	entry[script.Started](1, Activity, false, nil, Runtime),
	entry[script.Fetching](1, Activity, false, nil, Runtime),
	entry[script.Fetched](1, Activity, false, nil, Runtime),
	entry[script.Searched](1, Activity, false, nil, Runtime),

	entry[artifact.Kept](1, Activity, true, nil, Runtime),
	entry[artifact.Removed](1, Activity, true, nil, Runtime),
	entry[artifact.Refused](1, Activity, true, nil, Runtime),

	entry[visit.Admitted](1, Activity, true, nil, Toolbroker),
	entry[visit.Ended](1, Activity, true, nil, Environments),

	entry[ledger.Checkpointed](1, Proofs, false, nil, Ledger),
}

// routeOf is the executor of a service's own outcomes.
var routeOf = map[Service]call.Route{Toolbroker: call.Upstream, Runtime: call.Script, Environments: call.Exec}

// MaySay lists the routes under which service may say e; an entry without routes has the one empty route. Only the
// broker says an admission, for every executor; an outcome is said by the route's executor alone.
func (e Entry) MaySay(s Service) []call.Route {
	switch {
	case !slices.Contains(e.Says, s):
		return nil
	case len(e.Routes) == 0:
		return []call.Route{""}
	case len(e.Says) == 1:
		return e.Routes
	}
	return []call.Route{routeOf[s]}
}

func entry[T Event](version int, stream Stream, ordered bool, routes []call.Route, says ...Service) Entry {
	var zero T
	return Entry{
		Kind: zero.Kind(), Version: version, Stream: stream, Ordered: ordered, Says: says, Routes: routes,
		Type: reflect.TypeFor[T](),
	}
}

// jointly marks an ordered entry whose expected sequence is that of its noun in the tenant.
func jointly(e Entry) Entry {
	e.Jointly = true
	return e
}

// Filter is the one filter that an append of e at s is ordered by: it covers the whole aggregate.
func (e Entry) Filter(s Subject) string {
	if e.Jointly {
		return subjectRoot + string(s.Tenant) + "." + s.Noun + ".>"
	}
	return s.Filter()
}

var byKind = func() map[string]Entry {
	m := make(map[string]Entry, len(catalogue))
	for _, e := range catalogue {
		m[e.Kind] = e
	}
	return m
}()

// All lists every kind in the order in which things happen.
func All() []Entry { return slices.Clone(catalogue) }

// Find returns the entry of a kind.
func Find(kind string) (Entry, bool) {
	e, ok := byKind[kind]
	return e, ok
}

// EntryOf returns the entry of an event. It panics for a type that is not in the catalogue: a fault of the program.
func EntryOf(ev Event) Entry {
	e, ok := byKind[ev.Kind()]
	if !ok {
		panic("schemas: " + ev.Kind() + " is not in the catalogue")
	}
	return e
}
