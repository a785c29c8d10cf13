package standing_test

import (
	"encoding/json"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/member"
)

func stored(t *testing.T, key string, seq uint64, ev schemas.Event) eventlog.Stored {
	t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Stored{Stream: schemas.Control, Seq: seq, At: schemas.SubjectOf("tnt_a", ev.Kind(), key, ""),
		Envelope: schemas.Envelope{Type: schemas.TypeOf(schemas.EntryOf(ev)), Data: data}}
}

func TestTheHighestSequenceCounts(t *testing.T) {
	created, revoked := grant.Created{Grant: "grt_a", Agent: "agt_a"}, grant.Revoked{Grant: "grt_a", Agent: "agt_a"}
	g := standing.Thing{Tenant: "tnt_a", ID: "grt_a"}
	for name, c := range map[string]struct {
		events       []eventlog.Stored
		stands, gone bool
	}{
		"nothing":             {nil, false, false},
		"made":                {[]eventlog.Stored{stored(t, "grt_a", 1, created)}, true, false},
		"revoked":             {[]eventlog.Stored{stored(t, "grt_a", 1, created), stored(t, "grt_a", 2, revoked)}, false, true},
		"heard the other way": {[]eventlog.Stored{stored(t, "grt_a", 2, revoked), stored(t, "grt_a", 1, created)}, false, true},
		"made again":          {[]eventlog.Stored{stored(t, "grt_a", 2, revoked), stored(t, "grt_a", 3, created)}, true, false},
	} {
		var s standing.Set
		for _, e := range c.events {
			s.Apply(e)
		}
		if s.Stands(g) != c.stands || s.Gone(g) != c.gone || s.Gone(standing.Thing{Tenant: "tnt_b", ID: "grt_a"}) {
			t.Errorf("%s: stands %v, gone %v", name, s.Stands(g), s.Gone(g))
		}
	}
}

// An end is news once; what is heard again, or is about something else, is none.
func TestEndsAreNewsOnce(t *testing.T) {
	var s standing.Set
	gone := stored(t, "agt_a", 2, agent.Defined{Agent: "agt_a", Removed: true})
	for i, want := range []bool{true, false} {
		if thing, ended := s.Apply(gone); ended != want || thing.ID != "agt_a" {
			t.Errorf("%d: %v, %v", i, thing, ended)
		}
	}
	for _, e := range []eventlog.Stored{stored(t, "agt_a", 3, agent.Defined{Agent: "agt_a"}), stored(t, "mem_a", 4, member.Removed{Member: "mem_a"})} {
		if _, ended := s.Apply(e); ended {
			t.Errorf("%s ended something", e.At)
		}
	}
}
