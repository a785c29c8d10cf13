package bus

import (
	"fmt"
	"slices"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// BootUser makes streams and durables; nobody else may.
const BootUser = "boot"

// User is one NATS user with everything it may say and hear. It is an allow-list: what is not named is refused by
// the server.
type User struct {
	Name      string
	Publish   []string
	Subscribe []string
	// Responses is how many answers to one request the user may publish, within ResponseTTL.
	Responses   int
	ResponseTTL time.Duration
}

// Connector is what one life of the connector of an environment may say and hear: what is about its own environment, and
// is asked of it alone. key is its public NKey, and names its inbox.
func Connector(tenant id.Tenant, env id.Environment, instance, key string) User {
	return User{
		Name:      string(tenant) + "/" + string(env),
		Publish:   []string{MachineSubject(tenant, env, "*"), OutputSubject(tenant, env, "*"), GitSubject(string(tenant), string(env), "open"), GitSubject(string(tenant), string(env), "*.*"), VisitFrom(tenant, env, "*", "*")},
		Subscribe: []string{EnvironmentSubject(tenant, env, instance, "*"), VisitTo(tenant, env, instance, "*", "*"), InboxPrefix(key) + ".>"},
		Responses: 1, ResponseTTL: 5 * time.Minute,
	}
}

// reads lists, per service, the event streams that it reads back by sequence. Direct reads by sequence cannot be
// narrowed to subjects by the server, so this is per stream.
var reads = map[schemas.Service][]schemas.Stream{
	schemas.Agentloop:    {schemas.Activity, schemas.Control},
	schemas.Runtime:      {schemas.Activity, schemas.Control},
	schemas.Toolbroker:   {schemas.Activity, schemas.Control},
	schemas.Approvals:    {schemas.Activity, schemas.Control},
	schemas.Environments: {schemas.Activity, schemas.Control},
	schemas.Webhooks:     {schemas.Activity, schemas.Control},
	schemas.Gateway:      {schemas.Control, schemas.Activity},
	schemas.Ledger:       {schemas.Activity, schemas.Control, schemas.Proofs},
}

// executors act on calls, and claim them before.
var executors = []schemas.Service{schemas.Toolbroker, schemas.Runtime, schemas.Environments}

// Users generates every user from the catalogue.
func Users() []User {
	users := []User{{Name: BootUser, Publish: []string{">"}, Subscribe: []string{">"}}}
	for _, s := range schemas.Services() {
		users = append(users, serviceUser(s))
	}
	return users
}

func serviceUser(s schemas.Service) User {
	u := User{
		Name:      string(s),
		Subscribe: []string{InboxPrefix(string(s)) + ".>", "$SRV.>", HintSubject(string(s), "*", "*")},
		Responses: 1, ResponseTTL: time.Minute,
	}
	say := func(subjects ...string) { u.Publish = append(u.Publish, subjects...) }

	for _, e := range schemas.All() {
		for _, route := range e.MaySay(s) {
			at := schemas.SubjectOf("*", e.Kind, "*", route)
			say(at.String())
		}
	}
	for _, h := range schemas.Hearings() {
		if h.Service != s {
			continue
		}
		names := []string{h.Name}
		if h.View {
			names = h.Views()
		} else {
			say(fmt.Sprintf("$JS.ACK.%s.%s.>", h.Stream, h.Name))
		}
		for _, name := range names {
			say(
				fmt.Sprintf("$JS.API.CONSUMER.INFO.%s.%s", h.Stream, name),
				fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", h.Stream, name),
			)
		}
	}
	for _, stream := range reads[s] {
		say(fmt.Sprintf("$JS.API.DIRECT.GET.%s", stream), fmt.Sprintf("$JS.API.DIRECT.GET.%s.ew.v1.>", stream))
	}
	if slices.Contains(executors, s) {
		// Each instance hears at once that a run was cancelled; what it misses, it reads.
		u.Subscribe = append(u.Subscribe, RunCancelledSubject, LiveSubject("*.*.down"))
		say("$JS.API.STREAM.INFO.KV_"+ClaimsBucket, "$KV."+ClaimsBucket+".>",
			"$JS.API.DIRECT.GET.KV_"+ClaimsBucket+".$KV."+ClaimsBucket+".>")
	}
	if s == schemas.Runtime {
		u.Subscribe = append(u.Subscribe, RunEndedSubjects...) // it keeps a process for a run
	}
	if slices.Contains(schemas.Keepers(), s) { // each has its own key prefix
		own := "$KV." + SecretsBucket + "." + string(s) + ".>"
		say("$JS.API.STREAM.INFO.KV_"+SecretsBucket, own, "$JS.API.DIRECT.GET.KV_"+SecretsBucket+"."+own)
	}
	if s == schemas.Toolbroker {
		say("$JS.API.STREAM.INFO.KV_"+CountersBucket, "$KV."+CountersBucket+".>",
			"$JS.API.DIRECT.GET.KV_"+CountersBucket+".$KV."+CountersBucket+".>")
	}
	if s == schemas.Gateway {
		say("$JS.API.STREAM.INFO.KV_"+PeopleBucket, "$KV."+PeopleBucket+".>",
			"$JS.API.DIRECT.GET.KV_"+PeopleBucket+".$KV."+PeopleBucket+".>")
		u.Subscribe = append(u.Subscribe, LiveSubject(">"), VisitFrom("*", "*", "*", "*"))
		say(LiveSubject("*.*.down"), VisitTo("*", "*", "*", "*", "*"))
		u.ResponseTTL = AnswerWithin // it asks clients what servers ask
	}
	if s == schemas.Environments {
		// It lets connectors onto the bus, and nobody else in: the server asks only for whom it does not know itself.
		u.Subscribe = append(u.Subscribe, CalloutSubject, MachineSubject("*", "*", "*"))
		say(EnvironmentSubject("*", "*", "*", "*"), OutputHomeSubject("*", "*"), "$JS.API.DIRECT.GET."+OutputStream+".ew.out.v1.>", "$JS.API.DIRECT.GET."+OutputStream)
	}
	if s == schemas.Ledger {
		// It reads both streams by sequence, from where its database stands; what it hears here only wakes it.
		u.Subscribe = append(u.Subscribe, "ew.v1.>")
		say("$JS.API.STREAM.INFO."+string(schemas.Control), "$JS.API.STREAM.INFO."+string(schemas.Activity))
	}
	say("ew.blob.v1.>", "$JS.API.DIRECT.GET."+BlobStream+".ew.blob.v1.>", "ew.kept.v1.>", "$JS.API.DIRECT.GET."+KeptStream+".ew.kept.v1.>")
	say(DeadLetterSubject(string(s), "*"))
	say("ew.hint.v1.>")
	if s == schemas.Agentloop || s == schemas.Runtime || s == schemas.Ledger {
		say(LiveSubject(">"))
	}
	if s == schemas.Toolbroker {
		say(LiveSubject("*.*.up"), UpdatedSubject("*", "*"))
		u.Subscribe = append(u.Subscribe, GitSubject("*", "*", ">"))
	}
	for _, a := range schemas.Askings() {
		if slices.Contains(a.Askers, s) {
			say(RPCSubject(string(a.Service), a.Method, string(s)))
			if a.Each() {
				say(RPCSubject(Provisioner, "roster", string(s)))
			}
		}
		if a.Service == s {
			u.Subscribe = append(u.Subscribe, RPCSubject(string(s), a.Method, "*"))
		}
	}
	say(RPCSubject(Provisioner, "rewind", string(s)))
	slices.Sort(u.Publish)
	u.Publish = slices.Compact(u.Publish)
	return u
}

// AnswerWithin is how long the client of a call may take to answer what its server asks.
const AnswerWithin = 10 * time.Minute

// RunEndedSubjects are where the end of a run is said, whatever it is, of every tenant.
var RunEndedSubjects = []string{
	schemas.SubjectOf("*", run.Completed{}.Kind(), "*", "").String(), schemas.SubjectOf("*", run.Failed{}.Kind(), "*", "").String(), RunCancelledSubject,
}

// RunCancelledSubject is where the end of a cancelled run is said, of every tenant.
var RunCancelledSubject = schemas.SubjectOf("*", run.Cancelled{}.Kind(), "*", "").String()

// Provisioner is the name under which the boot user answers RPCs.
const Provisioner = "provisioner"

// RPCSubject is where an RPC is asked. Its last token is the asker, enforced by the server.
func RPCSubject(service, method, asker string) string {
	return "ew.rpc.v1." + service + "." + method + "." + asker
}

// HintSubject is where an instance is told that an outcome is stored.
func HintSubject(service, instance, nonce string) string {
	return "ew.hint.v1." + service + "." + instance + "." + nonce
}

// LiveSubject is where what is not stored flows: progress, deltas, news of the ledger.
func LiveSubject(rest string) string { return "ew.live.v1." + rest }

// UpdatedSubject is where it is said that a resource of a connection changed.
func UpdatedSubject(tenant id.Tenant, c id.Connection) string {
	return LiveSubject(string(tenant) + "." + string(c) + ".updated")
}

// CalloutSubject is where the server asks whether to let somebody in whom it does not know.
const CalloutSubject = "$SYS.REQ.USER.AUTH"

// CalloutWithin is how long the server waits for the answer.
const CalloutWithin = 5 * time.Second

// MachineSubject is where an environment's connector speaks: hello and beat.
func MachineSubject(tenant id.Tenant, env id.Environment, verb string) string {
	return "ew.machine.v1." + string(tenant) + "." + string(env) + "." + verb
}

// EnvironmentSubject is where one life of an environment's connector listens.
func EnvironmentSubject(tenant id.Tenant, env id.Environment, instance, verb string) string {
	return "ew.env.v1." + string(tenant) + "." + string(env) + "." + instance + "." + verb
}

// OutputSubject is where the output of a call on a machine is stored, in order.
func OutputSubject(tenant id.Tenant, env id.Environment, c id.Call) string {
	return "ew.out.v1." + string(tenant) + "." + string(env) + "." + string(c)
}

// OutputHomeSubject is where the registry keeps which environment a call was given to. No environment has that name, so no
// connector can say it.
func OutputHomeSubject(tenant id.Tenant, c id.Call) string {
	return "ew.out.v1." + string(tenant) + "._." + string(c)
}

// GitSubject is where the connector of an environment asks the broker for git requests with a connection's credential.
func GitSubject(tenant, env, rest string) string {
	return "ew.git.v1." + tenant + "." + env + "." + rest
}

// VisitTo is where what a person sends flows to a machine, and VisitFrom where what comes back does. Nothing of it is stored.
func VisitTo(tenant id.Tenant, env id.Environment, instance string, v id.Visit, stream string) string {
	return "ew.visit.v1.to." + string(tenant) + "." + string(env) + "." + instance + "." + string(v) + "." + stream
}

// VisitFrom is the way back; see VisitTo.
func VisitFrom(tenant id.Tenant, env id.Environment, v id.Visit, stream string) string {
	return "ew.visit.v1.from." + string(tenant) + "." + string(env) + "." + string(v) + "." + stream
}

// DeadLetterSubject is where a service puts a message of one of its durables that it cannot decode.
func DeadLetterSubject(service, durable string) string { return "ew.dlq.v1." + service + "." + durable }
