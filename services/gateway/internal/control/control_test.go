package control

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/token"
)

func at(t *testing.T, tenant id.Tenant, key string, seq uint64, ev schemas.Event) eventlog.Stored {
	t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Stored{Stream: schemas.Control, Seq: seq, At: schemas.SubjectOf(tenant, ev.Kind(), key, ""),
		Envelope: schemas.Envelope{Type: schemas.TypeOf(schemas.EntryOf(ev)), Data: data}}
}

func TestHighestSequenceOfAGrantCounts(t *testing.T) {
	created := grant.Created{Grant: "grt_a", Agent: "agt_a", Selector: grant.Selector{Tool: "x.*"}}
	revoked := grant.Revoked{Grant: "grt_a", Agent: "agt_a", Reason: "leak"}
	for name, c := range map[string]struct {
		events []eventlog.Stored
		active bool
	}{
		"revoked":             {[]eventlog.Stored{at(t, "tnt_a", "grt_a", 1, created), at(t, "tnt_a", "grt_a", 2, revoked)}, false},
		"heard the other way": {[]eventlog.Stored{at(t, "tnt_a", "grt_a", 2, revoked), at(t, "tnt_a", "grt_a", 1, created)}, false},
		"made again":          {[]eventlog.Stored{at(t, "tnt_a", "grt_a", 2, revoked), at(t, "tnt_a", "grt_a", 3, created)}, true},
		"heard twice": {[]eventlog.Stored{at(t, "tnt_a", "grt_a", 1, created), at(t, "tnt_a", "grt_a", 2, revoked),
			at(t, "tnt_a", "grt_a", 1, created)}, false},
	} {
		s := New()
		for _, e := range c.events {
			if err := s.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Grants("tnt_a"); len(got) != 1 || got[0].Revoked == c.active {
			t.Errorf("%s: %+v", name, got)
		}
		if got := s.Grants("tnt_b"); len(got) != 0 {
			t.Errorf("%s: another tenant has %+v", name, got)
		}
	}
}

// A removal and a revocation are final, in whatever order they are heard.
func TestRemovedAndRevokedAreFinal(t *testing.T) {
	events := []eventlog.Stored{
		at(t, "tnt_a", "mem_a", 1, member.Added{Member: "mem_a", Role: member.Admin}),
		at(t, "tnt_a", "tok_a", 2, token.Issued{Token: "tok_a", Member: "mem_a", Fingerprint: "9f86d081884c"}),
		at(t, "tnt_a", "tok_a", 3, token.Revoked{Token: "tok_a", Member: "mem_a", Reason: "lost"}),
		at(t, "tnt_a", "mem_a", 4, member.Removed{Member: "mem_a", Reason: "left"}),
		at(t, "tnt_a", "mem_a", 5, member.Added{Member: "mem_a", Role: member.Owner}), // nobody says this; if somebody did
	}
	for i := range 40 {
		s := New()
		for _, j := range rand.New(rand.NewPCG(uint64(i), 1)).Perm(len(events)) {
			if err := s.Apply(events[j]); err != nil {
				t.Fatal(err)
			}
		}
		_, there := s.Role("tnt_a", "mem_a")
		k, known := s.Token("tnt_a", "tok_a")
		if there || !known || !k.Revoked || k.Reason != "lost" || k.Fingerprint == "" || len(s.Members("tnt_a")) != 1 {
			t.Errorf("%d: there %t, %+v", i, there, k)
		}
	}
}

func TestConnectionKeepsItsToolsWhenItIsDefinedAnew(t *testing.T) {
	s := New()
	for _, e := range []eventlog.Stored{
		at(t, "tnt_a", "con_a", 1, connection.Defined{Connection: "con_a"}),
		at(t, "tnt_a", "con_a", 2, connection.Listed{Connection: "con_a", Body: connection.Tools{Tools: []connection.Tool{{Name: "get"}}}}),
		at(t, "tnt_a", "con_a", 3, connection.Defined{Connection: "con_a", Trusted: true}),
	} {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.Connections("tnt_a"); len(c) != 1 || !c[0].Trusted || len(s.Tools("tnt_a", "con_a")) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestAgentDefinitions(t *testing.T) {
	good := agent.Defined{Agent: "agt_a", Hosting: agent.Hosted, Model: agent.Model{Protocol: "openai", URL: "https://models.example/v1", Name: "m"}}
	if err := CheckAgent(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*agent.Defined){
		"no hosting":      func(a *agent.Defined) { a.Hosting = "" },
		"no model":        func(a *agent.Defined) { a.Model = agent.Model{} },
		"hosted over MCP": func(a *agent.Defined) { a.MCP.Tools = agent.Lazy },
		"another listing": func(a *agent.Defined) {
			*a = agent.Defined{Agent: a.Agent, Hosting: agent.External, MCP: agent.MCP{Tools: "some"}}
		},
		"file URL":          func(a *agent.Defined) { a.Model.URL = "file:///etc/passwd" },
		"no name":           func(a *agent.Defined) { a.Model.Name = "" },
		"private name":      func(a *agent.Defined) { a.Model.Private = []string{"internal:80"} },
		"negative budget":   func(a *agent.Defined) { a.Budgets.Steps = -1 },
		"egress to nowhere": func(a *agent.Defined) { a.Runtime.Egress = []agent.Egress{{}} },
		"egress to no host": func(a *agent.Defined) { a.Runtime.Egress = []agent.Egress{{Hosts: []string{"https://a"}}} },
		"a cap that is raised": func(a *agent.Defined) {
			a.Runtime.Egress = []agent.Egress{{Hosts: []string{"a"}, ResponseBytes: 6 << 20}}
		},
		"a negative cap":     func(a *agent.Defined) { a.Runtime.Egress = []agent.Egress{{Hosts: []string{"a"}, Fetches: -1}} },
		"external and model": func(a *agent.Defined) { a.Hosting = agent.External },
	} {
		a := good
		change(&a)
		if err := CheckAgent(a); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Body.Instructions = strings.Repeat("x", maxInstructions+1)
	if err := CheckAgent(good); problem.CodeOf(err) != problem.TooLarge {
		t.Error(err)
	}
}

// What a token is tainted by is what was said last, in whatever order it is heard, and makes no token of it.
func TestTaintOfATokenIsWhatWasSaidLast(t *testing.T) {
	s := New()
	for _, e := range []eventlog.Stored{
		at(t, "tnt_a", "tok_1", 7, token.Tainted{Token: "tok_1", Agent: "agt_a", Taint: []string{"con_a", "con_b"}}),
		at(t, "tnt_a", "tok_1", 5, token.Tainted{Token: "tok_1", Agent: "agt_a", Taint: []string{"con_a"}}),
		at(t, "tnt_a", "tok_1", 9, token.Revoked{Token: "tok_1"}),
	} {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Taint("tnt_a", "tok_1"); len(got.Origins) != 2 || got.Seq != 7 {
		t.Errorf("%+v", got)
	}
	if len(s.Taint("tnt_b", "tok_1").Origins)+len(s.Taint("tnt_a", "tok_2").Origins)+len(s.Tokens("tnt_a")) != 0 {
		t.Error("another's is tainted, or a token is made")
	}
}
