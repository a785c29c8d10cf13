package schemas_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
)

func TestParseSubject(t *testing.T) {
	for text, want := range map[string]schemas.Subject{
		"ew.v1.tnt_a.run.run_1.created":             {Tenant: "tnt_a", Noun: "run", Key: "run_1", Verb: "created"},
		"ew.v1.tnt_a.call.mcp_1-2.admitted.script":  {Tenant: "tnt_a", Noun: "call", Key: "mcp_1-2", Verb: "admitted", Route: "script"},
		"ew.v1.tnt_a.flower.flw_1.bloomed.sideways": {Tenant: "tnt_a", Noun: "flower", Key: "flw_1", Verb: "bloomed", Route: "sideways"}, // newer than this program
	} {
		got, err := schemas.ParseSubject(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%s is written as %s", text, got)
		}
		if !strings.HasPrefix(text, strings.TrimSuffix(got.Filter(), ">")) {
			t.Errorf("the filter %s does not cover %s: the expected sequence would not be checked", got.Filter(), text)
		}
	}
	for _, text := range []string{
		"", ".", "ew", "ew.v1", "ew.v1.tnt_a.run.run_1", "ew.v1.tnt_a.run.run_1.created.script.more",
		"ew.v2.tnt_a.run.run_1.created", "EW.v1.tnt_a.run.run_1.created", "ew.v1.tnt_A.run.run_1.created",
		"ew.v1.mem_a.run.run_1.created", "ew.v1.tnt_.run.run_1.created", "ew.v1.*.run.run_1.created", "ew.v1.tnt_a.run.>.created",
		"ew.v1.tnt_a.run.*.created", "ew.v1.tnt_a..run_1.created", "ew.v1.tnt_a.run.run_1.", "ew.v1.tnt_a.run.run 1.created",
		"ew.v1.tnt_a.run.run_1.created\n", "ew.v1.tnt_a.run.run_1\x00.created", "ew.v1.tnt_a.run.rün.created",
		"ew.v1.tnt_a.run." + strings.Repeat("a", 81) + ".created", "ew.v1.tnt_" + strings.Repeat("a", 49) + ".run.run_1.created",
		"$JS.API.STREAM.PURGE.EW_ACTIVITY", strings.Repeat("ew.v1.", 10_000),
	} {
		if got, err := schemas.ParseSubject(text); err == nil {
			t.Errorf("%.80q is taken for %+v", text, got)
		} else if len(err.Error()) > 400 {
			t.Errorf("the error about %.20q is %d bytes long", text, len(err.Error()))
		}
	}
}

const subjectA = "ew.v1.tnt_main.run.run_1.created"

// event is a valid event with one thing changed.
func event(change func(map[string]any)) []byte {
	m := map[string]any{
		"specversion": "1.0", "id": "evt_1", "source": "/agentloop/0", "type": "ew.run.created.v1", "subject": "run/run_1",
		"time": "2026-11-30T12:00:00Z", "datacontenttype": "application/json", "tenant": "tnt_main", "actor": "mem_x",
		"data": map[string]any{"run": "run_1", "body": map[string]any{"text": "do it"}},
	}
	change(m)
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestParseEnvelopeRefuses(t *testing.T) {
	set := func(name string, v any) []byte { return event(func(m map[string]any) { m[name] = v }) }
	for name, raw := range map[string][]byte{
		"nothing":              nil,
		"no JSON":              []byte("\x00\xff"),
		"an array":             []byte("[]"),
		"null":                 []byte("null"),
		"two objects":          append(event(func(map[string]any) {}), []byte("{}")...),
		"garbage after it":     append(event(func(map[string]any) {}), 'x'),
		"another tenant":       set("tenant", "tnt_other"),
		"no tenant":            set("tenant", ""),
		"another kind":         set("type", "ew.run.completed.v1"),
		"a foreign type":       set("type", "com.example.run.created.v1"),
		"a type of no version": set("type", "ew.run.created"),
		"specversion 0.3":      set("specversion", "0.3"),
		"no id":                set("id", ""),
		"an id of a run":       set("id", "run_1"),
		"an id with a newline": set("id", "evt_1\nNats-Msg-Id: x"),
		"no data":              event(func(m map[string]any) { delete(m, "data") }),
		"text for a time":      set("time", "yesterday"),
		"a number for an id":   set("id", 1),
		"over the limit":       set("padding", strings.Repeat("x", schemas.MaxEnvelope)),
		"deep nesting":         []byte(strings.Repeat("[", 100_000)),
	} {
		if e, _, err := schemas.ParseEnvelope(subjectA, raw); err == nil {
			t.Errorf("%s is taken for %+v", name, e)
		}
	}
	if _, _, err := schemas.ParseEnvelope("ew.v1.tnt_main.run", event(func(map[string]any) {})); err == nil {
		t.Error("a subject that is none is accepted")
	}
}

// Fields are only ever added: a newer producer's event is read by an older program.
func TestUnknownFieldsAreTolerated(t *testing.T) {
	raw := event(func(m map[string]any) {
		m["newattribute"] = map[string]any{"deep": []int{1}}
		m["data"].(map[string]any)["new_field"] = true
		m["data"].(map[string]any)["body"].(map[string]any)["new_text"] = "x"
	})
	e, _, err := schemas.ParseEnvelope(subjectA, raw)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := e.Decode()
	if created, ok := ev.(run.Created); err != nil || !ok || created.Body.Text != "do it" {
		t.Errorf("%+v, %v", ev, err)
	}
}

// What a newer program says has its place and its envelope here too; only its meaning is not known.
func TestUnknownKindIsKept(t *testing.T) {
	for subject, typ := range map[string]string{
		"ew.v1.tnt_main.flower.flw_1.bloomed": "ew.flower.bloomed.v1",
		subjectA:                              "ew.run.created.v2", // another version is another kind
	} {
		raw := event(func(m map[string]any) { m["type"] = typ })
		e, at, err := schemas.ParseEnvelope(subject, raw)
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		if at.String() != subject || e.Kind() != at.Kind() {
			t.Errorf("%s stands at %s", e.Kind(), at)
		}
		if _, err := e.Decode(); !errors.Is(err, schemas.ErrUnknownKind) {
			t.Errorf("%s decodes with %v", typ, err)
		}
	}
}

// Data of another shape is an error, not an event of zero values that somebody might act on.
func TestDecodeRefuses(t *testing.T) {
	for name, data := range map[string]any{
		"null": nil, "text": "x", "a number": 7, "an array": []any{}, "a body of text": map[string]any{"body": "x"}, "a number for a run": map[string]any{"run": 7},
	} {
		e, _, err := schemas.ParseEnvelope(subjectA, event(func(m map[string]any) { m["data"] = data }))
		if err != nil {
			continue // refused earlier, which is as good
		}
		if ev, err := e.Decode(); err == nil || errors.Is(err, schemas.ErrUnknownKind) {
			t.Errorf("data of %s decodes to %+v, %v", name, ev, err)
		}
	}
}

func TestCatalogue(t *testing.T) {
	kinds := map[string]bool{}
	plain := regexp.MustCompile(`^[a-z]+\.[a-z]+(_[a-z]+)*$`)
	for _, e := range schemas.All() {
		if kinds[e.Kind] {
			t.Errorf("%s is there twice", e.Kind)
		}
		kinds[e.Kind] = true
		if !plain.MatchString(e.Kind) {
			t.Errorf("%s is not noun.verb", e.Kind)
		}
		noun, _, _ := strings.Cut(e.Kind, ".")
		if path := e.Type.PkgPath(); path != "github.com/execwarden/execwarden/schemas/"+noun {
			t.Errorf("%s is a type of %s: the noun is the package", e.Kind, path)
		}
		if got := reflect.Zero(e.Type).Interface().(schemas.Event).Kind(); got != e.Kind {
			t.Errorf("%s says that it is %s", e.Kind, got)
		}
		if len(e.Says) == 0 {
			t.Errorf("nobody may say %s", e.Kind)
		}
		for _, s := range e.Says {
			if !slices.Contains(schemas.Services(), s) {
				t.Errorf("%s is said by %s, which is no service", e.Kind, s)
			}
		}
		if e.Version < 1 || !slices.Contains([]schemas.Stream{schemas.Control, schemas.Activity, schemas.Proofs}, e.Stream) {
			t.Errorf("%s has version %d on %s", e.Kind, e.Version, e.Stream)
		}
		if found, ok := schemas.Find(e.Kind); !ok || found.Type != e.Type {
			t.Errorf("%s is not found", e.Kind)
		}
		if text := string(schemas.TypeOf(e)); (schemas.Envelope{Type: text}).Kind() != e.Kind {
			t.Errorf("the type %s is of kind %s", text, (schemas.Envelope{Type: text}).Kind())
		}
	}
	// One aggregate is kept in order or not at all: an expected sequence beside plain writes proves nothing.
	ordered, stream := map[string]bool{}, map[string]schemas.Stream{}
	for _, e := range schemas.All() {
		noun, _, _ := strings.Cut(e.Kind, ".")
		at := schemas.SubjectOf("tnt_a", e.Kind, "x", "")
		if filter := e.Filter(at); !strings.HasPrefix(at.String(), strings.TrimSuffix(filter, ">")) || e.Jointly && !e.Ordered {
			t.Errorf("the filter %s does not cover %s: the expected sequence would not be checked", filter, at)
		}
		if e.Jointly != schemas.EntryOf(member.Added{}).Jointly && noun == "member" {
			t.Errorf("%s is not ordered with the tenant's other members", e.Kind)
		}
		if was, seen := ordered[noun]; seen && was != e.Ordered {
			t.Errorf("%s is ordered: %v, and others of its aggregate are not", e.Kind, e.Ordered)
		}
		if was, seen := stream[noun]; seen && was != e.Stream {
			t.Errorf("%s is on %s, and others of its aggregate on %s", e.Kind, e.Stream, was)
		}
		ordered[noun], stream[noun] = e.Ordered, e.Stream
	}
}

// Who may admit, and who may end a call, is the whole of the security of the bus.
func TestWhoMaySay(t *testing.T) {
	executors := map[schemas.Service]call.Route{schemas.Toolbroker: call.Upstream, schemas.Runtime: call.Script, schemas.Environments: call.Exec}
	say := func(kind string, s schemas.Service) []call.Route {
		e, ok := schemas.Find(kind)
		if !ok {
			t.Fatalf("%s is no kind", kind)
		}
		return e.MaySay(s)
	}
	for _, s := range schemas.Services() {
		for _, kind := range []string{"call.finished", "call.failed", "call.cancelled", "call.unknown", "call.late"} {
			var want []call.Route
			if r, ok := executors[s]; ok {
				want = []call.Route{r}
			}
			if got := say(kind, s); !slices.Equal(got, want) {
				t.Errorf("%s may say %s under %v, want %v", s, kind, got, want)
			}
		}
		for _, kind := range []string{"call.admitted", "call.held", "call.refused", "key.published", "connection.defined"} {
			if got := say(kind, s); (s == schemas.Toolbroker) != (len(got) > 0) {
				t.Errorf("%s may say %s under %v", s, kind, got)
			}
		}
		for _, kind := range []string{"approval.decided", "approval.expired", "grant.created", "grant.revoked"} {
			if got := say(kind, s); (s == schemas.Approvals) != (len(got) > 0) {
				t.Errorf("%s may say %s under %v", s, kind, got)
			}
		}
		if got := say("ledger.checkpointed", s); (s == schemas.Ledger) != (len(got) > 0) {
			t.Errorf("%s may say checkpoints", s)
		}
	}
	if got := say("call.admitted", schemas.Toolbroker); !slices.Equal(got, []call.Route{call.Upstream, call.Script, call.Exec}) {
		t.Errorf("the broker admits for %v", got)
	}
}

func TestAskingsAndHearings(t *testing.T) {
	methods := map[string]bool{}
	for _, a := range schemas.Askings() {
		name := string(a.Service) + "." + a.Method
		if methods[name] || len(a.Askers) == 0 || slices.Contains(a.Askers, a.Service) && !a.Each() {
			t.Errorf("asking %+v", a)
		}
		methods[name] = true
	}
	names := map[string]bool{}
	for _, h := range schemas.Hearings() {
		if names[h.Name] || !strings.HasPrefix(h.Name, string(h.Service)+"_") {
			t.Errorf("hearing %+v: a durable is unique and starts with its service", h)
		}
		names[h.Name] = true
		if h.View != strings.HasSuffix(h.Name, "_view") || h.View && (h.Stream != schemas.Control || h.Filter != "ew.v1.>") {
			t.Errorf("hearing %+v", h)
		}
		// A filter that no kind matches hears nothing, for ever, without a word.
		if !slices.ContainsFunc(schemas.All(), func(e schemas.Entry) bool {
			routes := append([]call.Route{""}, e.Routes...)
			return e.Stream == h.Stream && slices.ContainsFunc(routes, func(r call.Route) bool {
				return covers(h.Filter, schemas.SubjectOf("tnt_a", e.Kind, "k_1", r).String())
			})
		}) {
			t.Errorf("%s hears nothing under %s", h.Name, h.Filter)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a durable that is not there is found")
		}
	}()
	schemas.FindHearing("nobody")
}

// covers says whether a NATS filter matches a subject.
func covers(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(f) == len(s)
}

func TestRetention(t *testing.T) {
	if schemas.Control.Retention() != 0 || schemas.Proofs.Retention() != 0 || schemas.Activity.Retention() != 30*24*time.Hour {
		t.Error("retention changed")
	}
}

func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{subjectA, "ew.v1.tnt_a.call.run_1.admitted.exec", "ew.v1.*.>", "ew.v1.tnt_a.run.run_1.created.", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schemas.ParseSubject(text)
		if err != nil {
			return
		}
		if s.String() != text || strings.ContainsAny(text, "*> \t\r\n") {
			t.Errorf("%q is read as %+v", text, s)
		}
		if !covers(s.Filter(), text) {
			t.Errorf("%s does not cover %s", s.Filter(), text)
		}
	})
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add(subjectA, event(func(map[string]any) {}))
	f.Add("ew.v1.tnt_main.call.run_1.requested", event(func(m map[string]any) { m["type"] = "ew.call.requested.v1" }))
	f.Add(subjectA, []byte(`{"data":{}}`))
	f.Fuzz(func(t *testing.T, subject string, raw []byte) {
		e, at, err := schemas.ParseEnvelope(subject, raw)
		if err != nil {
			return
		}
		if e.Tenant != at.Tenant || e.Kind() != at.Kind() || len(raw) > schemas.MaxEnvelope {
			t.Errorf("%+v at %+v", e, at)
		}
		ev, err := e.Decode()
		if err == nil && ev.Kind() != at.Kind() {
			t.Errorf("%s decodes to %s", at.Kind(), ev.Kind())
		}
	})
}
