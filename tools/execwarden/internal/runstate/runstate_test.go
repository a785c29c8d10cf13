package runstate

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

func event(t *testing.T, of id.Run, ev schemas.Event) client.Event {
	t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	entry := schemas.EntryOf(ev)
	subject := schemas.SubjectOf("tnt_main", entry.Kind, string(of), "").String()
	raw, err := json.Marshal(schemas.Envelope{SpecVersion: "1.0", ID: "evt_1", Type: schemas.TypeOf(entry), Time: time.Unix(1, 0).UTC(), Tenant: "tnt_main", Run: of, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return client.Event{Stream: string(entry.Stream), Subject: subject, Kind: entry.Kind, Event: raw}
}

func TestStates(t *testing.T) {
	t.Parallel()
	const which = id.Run("run_1")
	ended := time.Unix(1, 0).UTC()
	asks := func(a id.Approval) schemas.Event { return approval.Requested{Approval: a, Run: which} }
	for name, tc := range map[string]struct {
		events []schemas.Event
		want   Run
	}{
		"nothing yet":            {nil, Run{Run: which, State: Running}},
		"waits":                  {[]schemas.Event{asks("apr_1"), asks("apr_2"), approval.Decided{Approval: "apr_1", Run: which}}, Run{Run: which, State: Waiting, Waits: []id.Approval{"apr_2"}}},
		"waits no more":          {[]schemas.Event{asks("apr_1"), approval.Expired{Approval: "apr_1", Run: which}}, Run{Run: which, State: Running, Waits: []id.Approval{}}},
		"failed while it waited": {[]schemas.Event{asks("apr_1"), run.Failed{Run: which, Code: "timeout", Message: "m"}}, Run{Run: which, State: Failed, Ended: ended, Code: "timeout", Message: "m"}},
		"the first end counts":   {[]schemas.Event{run.Cancelled{Run: which, Reason: "r"}, run.Completed{Run: which}}, Run{Run: which, State: Cancelled, Ended: ended, Message: "r"}},
		"counts tokens":          {[]schemas.Event{run.ModelCompleted{Run: which, Step: 2, InputTokens: 3, OutputTokens: 4}}, Run{Run: which, State: Running, Steps: 2, Tokens: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := New(which)
			r.Apply(event(t, "run_2", run.Failed{Run: "run_2"})) // another run's
			r.Apply(client.Event{Event: []byte("no envelope")})
			for _, ev := range tc.events {
				r.Apply(event(t, which, ev))
			}
			if diff := cmp.Diff(&tc.want, r); diff != "" {
				t.Error(diff)
			}
		})
	}
}
