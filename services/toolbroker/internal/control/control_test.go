package control_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/control"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

type stream struct {
	t     testing.TB
	state *control.State
	seq   uint64
}

func (s *stream) say(key string, ev schemas.Event) { s.seq++; s.sayAt(s.seq, key, ev) }

func (s *stream) sayAt(seq uint64, key string, ev schemas.Event) {
	s.t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		s.t.Fatal(err)
	}
	s.state.Apply(eventlog.Stored{Stream: schemas.Control, Seq: seq, At: schemas.SubjectOf("tnt_a", ev.Kind(), key, ""),
		Envelope: schemas.Envelope{Type: schemas.TypeOf(schemas.EntryOf(ev)), Data: data}})
}

func created(name id.Grant, a id.Agent) grant.Created {
	return grant.Created{Grant: name, Agent: a, Approval: grant.Never, Selector: grant.Selector{Tool: "tickets.*"}}
}

func TestGrantsOfAnAgent(t *testing.T) {
	s := &stream{t: t, state: control.New()}
	names := func(a id.Agent) (out string) {
		for _, g := range s.state.Known("tnt_a", a, "").Grants {
			out += id.Name(g.Created.Grant) + " "
		}
		return out
	}
	s.say("grt_b", created("grt_b", "agt_a"))
	s.say("grt_a", created("grt_a", "agt_a"))
	s.say("grt_c", created("grt_c", "agt_other"))
	before := s.state.Known("tnt_a", "agt_a", "").Grants
	if names("agt_a") != "a b " || names("agt_other") != "c " || names("agt_none") != "" {
		t.Errorf("%q, %q", names("agt_a"), names("agt_other"))
	}
	s.say("grt_a", grant.Revoked{Grant: "grt_a", Agent: "agt_a"})
	s.sayAt(2, "grt_a", created("grt_a", "agt_a")) // heard again, out of order
	s.say("grt_b", created("grt_b", "agt_other"))  // made anew, for another agent
	s.say("grt_x", grant.Revoked{Grant: "grt_x", Agent: "agt_a"})
	if names("agt_a") != "" || names("agt_other") != "b c " {
		t.Errorf("%q, %q", names("agt_a"), names("agt_other"))
	}
	if len(before) != 2 || before[0].Created.Grant != "grt_a" {
		t.Errorf("what was given before changed: %+v", before)
	}
	if s.state.Known("tnt_b", "agt_a", "").Grants != nil {
		t.Error("another tenant knows them")
	}
}

// BenchmarkDecision is what a decision costs by the number of grants in the tenant, of which the agent has ten: it has to
// stay the same.
func BenchmarkDecision(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := &stream{t: b, state: control.New()}
			s.say("con_tickets", connection.Defined{Connection: "con_tickets", Type: connection.API})
			s.say("con_tickets", connection.Listed{Connection: "con_tickets", Body: connection.Tools{Tools: []connection.Tool{{Name: "get", Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Pure}}}})
			for i := range n {
				a := id.Agent(fmt.Sprintf("agt_%d", i/10))
				if i%10 == 0 {
					s.say(string(a), agent.Defined{Agent: a, Hosting: agent.Hosted})
				}
				g := created(id.Grant(fmt.Sprintf("grt_%d", i)), a)
				if i%10 == 9 {
					g.Condition = "args.n > 3"
				} else {
					g.Selector.Tool = fmt.Sprintf("other%d.*", i)
				}
				s.say(string(g.Grant), g)
			}
			var conditions condition.Cache
			request := policy.Request{Run: "run_1", Args: json.RawMessage(`{"n":4}`)}
			now := time.Now()
			for b.Loop() {
				if d := policy.Decide(s.state.Known("tnt_a", "agt_0", "tickets.get"), request, &conditions, now); d.Verdict != policy.Admit {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
