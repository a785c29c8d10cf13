package rules_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/services/webhooks/internal/rules"
)

const opened = `{"action":"opened","repository":{"full_name":"Acme/Shop"},"sender":{"login":"ann","type":"User"},
 "issue":{"number":7,"title":"It\nbreaks\u2028here","body":"Long story","html_url":"https://github.com/Acme/Shop/issues/7","user":{"login":"bob"}}}`

func TestRead(t *testing.T) {
	f, err := rules.Read("issues", []byte(opened))
	want := rules.Facts{Event: "issues.opened", Repo: "Acme/Shop", Number: 7, Title: "It breaks here", Body: "Long story",
		URL: "https://github.com/Acme/Shop/issues/7", Author: "bob", Sender: "ann"}
	if err != nil || f != want {
		t.Errorf("%+v, %v", f, err)
	}
	for raw, want := range map[string]rules.Facts{
		`{}`:   {Event: "push", Bot: true}, // no sender: nobody who may trigger
		`null`: {Event: "push", Bot: true},
		`{"sender":{"login":"x[bot]","type":"Bot"},"unknown":{"deep":[1]}}`:                            {Event: "push", Sender: "x[bot]", Bot: true},
		`{"sender":{"login":"acme","type":"Organization"}}`:                                            {Event: "push", Sender: "acme", Bot: true},
		`{"sender":{"login":"u","type":"User"},"pull_request":{"number":1,"title":"t","body":null}}`:   {Event: "push", Sender: "u", Number: 1, Title: "t"},
		`{"sender":null,"repository":null,"issue":null}`:                                               {Event: "push", Bot: true},
		`{"action":"created","sender":{"login":"u","type":"User"},"repository":{"full_name":"a/b/c"}}`: {Event: "push.created", Sender: "u", Repo: "a/b/c"},
	} {
		if f, err := rules.Read("push", []byte(raw)); err != nil || f != want {
			t.Errorf("%s: %+v, %v", raw, f, err)
		}
	}
	for _, raw := range []string{"", "x", "[]", `"text"`, `{"issue":7}`, `{"issue":{"number":"7"}}`, `{"action":1}`, `{}{}`, "{\"action\":\"\x00\"}"} {
		if f, err := rules.Read("issues", []byte(raw)); err == nil {
			t.Errorf("%q is read as %+v", raw, f)
		}
	}
}

func TestLongTextsAreClippedAtACharacter(t *testing.T) {
	long := strings.Repeat("ä", 100_000)
	f, err := rules.Read("issues", []byte(`{"issue":{"title":"a`+long+`","body":"b`+long+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Title) > 1<<10 || len(f.Body) > 32<<10 || len(f.Body) < 32<<10-4 || !utf8.ValidString(f.Title) || !utf8.ValidString(f.Body) {
		t.Errorf("title of %d bytes, body of %d", len(f.Title), len(f.Body))
	}
}

func TestMatches(t *testing.T) {
	facts := rules.Facts{Event: "issues.opened", Repo: "acme/shop", Sender: "ann"}
	def := trigger.Defined{Events: []string{"issues.reopened", "issues.opened"}, Repos: []string{"Acme/Shop"}}
	if ok, why := rules.Matches(def, facts); !ok || why != "" {
		t.Errorf("it does not match: %s", why)
	}
	for name, change := range map[string]func(*trigger.Defined, *rules.Facts){
		"removed":       func(d *trigger.Defined, _ *rules.Facts) { d.Removed = true },
		"another event": func(_ *trigger.Defined, f *rules.Facts) { f.Event = "issues.closed" },
		"no action":     func(_ *trigger.Defined, f *rules.Facts) { f.Event = "issues" },
		"a bot":         func(_ *trigger.Defined, f *rules.Facts) { f.Bot = true },
		"another repo":  func(_ *trigger.Defined, f *rules.Facts) { f.Repo = "acme/shop2" },
		"repo's prefix": func(_ *trigger.Defined, f *rules.Facts) { f.Repo = "acme/sho" },
		"no repos":      func(d *trigger.Defined, _ *rules.Facts) { d.Repos = nil },
		"no repository": func(d *trigger.Defined, f *rules.Facts) { f.Repo, d.Repos = "", []string{"acme/*"} },
		"a glob":        func(d *trigger.Defined, _ *rules.Facts) { d.Repos = []string{"*"} },
	} {
		d, f := def, facts
		change(&d, &f)
		if ok, why := rules.Matches(d, f); ok || why == "" {
			t.Errorf("%s: matches %v, because %q", name, ok, why)
		}
	}
}

func TestCheck(t *testing.T) {
	good := trigger.Defined{Events: []string{"issues.opened"}, Prompt: "{{if .Title}}Title: {{.Title}}{{else}}none{{end}} {{with .Author}}by {{.}}{{end}} {{len .Body}} {{eq .Number 7}}"}
	if err := rules.Check(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*trigger.Defined){
		"no events":        func(d *trigger.Defined) { d.Events = nil },
		"51 events":        func(d *trigger.Defined) { d.Events = make([]string, 51) },
		"501 repositories": func(d *trigger.Defined) { d.Repos = make([]string, 501) },
		"an empty prompt":  func(d *trigger.Defined) { d.Prompt = " \n\t" },
		"a long prompt":    func(d *trigger.Defined) { d.Prompt = strings.Repeat("x", 128<<10+1) },
		"broken syntax":    func(d *trigger.Defined) { d.Prompt = "{{.Title" },
		"an unknown field": func(d *trigger.Defined) { d.Prompt = "{{.Secret}}" },
		"an unknown func":  func(d *trigger.Defined) { d.Prompt = `{{env "HOME"}}` },
		// What follows would keep a processor, or the memory, of everybody busy.
		"a loop": func(d *trigger.Defined) { d.Prompt = "{{range 1000000000000}}{{end}}" },
		"a loop in a branch": func(d *trigger.Defined) {
			d.Prompt = "{{if .Bot}}{{else}}{{with .Event}}{{else}}{{range 1000000000000}}{{end}}{{end}}{{end}}"
		},
		"doubling templates": func(d *trigger.Defined) { d.Prompt = doublingTemplates() },
		"endless recursion":  func(d *trigger.Defined) { d.Prompt = `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}` },
		"a block":            func(d *trigger.Defined) { d.Prompt = `{{block "x" .}}{{end}}` },
		"doubling variables": func(d *trigger.Defined) {
			d.Prompt = `{{$x := "0123456789"}}` + strings.Repeat(`{{$x = print $x $x}}`, 60)
		},
		"escaping over again": func(d *trigger.Defined) { d.Prompt = `{{$x := "<<<<"}}` + strings.Repeat(`{{$x = js $x}}`, 60) },
		"wide formats":        func(d *trigger.Defined) { d.Prompt = `{{printf "` + strings.Repeat("%999999d", 10_000) + `" 1}}` },
		"in a pipeline":       func(d *trigger.Defined) { d.Prompt = `{{.Title | printf "%999999s"}}` },
	} {
		d := good
		change(&d)
		if err := rules.Check(d); err == nil {
			t.Errorf("%s can be used", name)
		}
	}
}

// doublingTemplates execute 2^60 templates and write nothing.
func doublingTemplates() string {
	var b strings.Builder
	b.WriteString(`{{define "a"}}{{end}}`)
	for c := 'a'; c < 'z'; c++ {
		b.WriteString(`{{define "` + string(c+1) + `"}}` + strings.Repeat(`{{template "`+string(c)+`"}}`, 8) + `{{end}}`)
	}
	return b.String() + `{{template "z"}}`
}

func TestPromptIsLimited(t *testing.T) {
	d := trigger.Defined{Prompt: strings.Repeat("{{.Body}}", 5)}
	if _, err := rules.Prompt(d, rules.Facts{Body: strings.Repeat("x", 32<<10)}); err == nil || len(err.Error()) > 500 {
		t.Errorf("160 KiB of prompt: %.600v", err)
	}
	// What a stranger wrote is data: it is not looked at for templates again.
	got, err := rules.Prompt(trigger.Defined{Prompt: "t: {{.Title}}"}, rules.Facts{Title: "{{.Body}}", Body: "secret"})
	if err != nil || got != "t: {{.Body}}" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRunIDIsTheDeliverys(t *testing.T) {
	a := rules.RunID("tnt_a", "dlv_1", "trg_1")
	if a != rules.RunID("tnt_a", "dlv_1", "trg_1") {
		t.Error("a delivery that comes twice starts two runs")
	}
	if a == rules.RunID("tnt_b", "dlv_1", "trg_1") || a == rules.RunID("tnt_a", "dlv_2", "trg_1") || a == rules.RunID("tnt_a", "dlv_1", "trg_2") {
		t.Error("two deliveries, or triggers, start one run")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("issues", []byte(opened))
	f.Add("push", []byte(`{"sender":{"type":"Bot"}}`))
	d := trigger.Defined{Prompt: "{{.Event}} {{.Repo}} {{.Title}} {{.Body}}"}
	f.Fuzz(func(t *testing.T, event string, raw []byte) {
		facts, err := rules.Read(event, raw)
		if err != nil {
			return
		}
		if len(facts.Title) > 1<<10 || len(facts.Body) > 32<<10 || strings.ContainsAny(facts.Title, "\n\r\x00") {
			t.Errorf("%+v", facts)
		}
		if len(facts.Event)+len(facts.Repo) < 64<<10 {
			if _, err := rules.Prompt(d, facts); err != nil {
				t.Error(err)
			}
		}
	})
}

// A trigger fires only for what it names, whatever the payload says.
func TestMatchesOnlyWhatIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c]{1,2}/[a-c]{1,2}`)
		event := rapid.StringMatching(`(issues|push)(\.opened|\.closed)?`)
		d := trigger.Defined{Events: rapid.SliceOfN(event, 0, 3).Draw(t, "events"), Repos: rapid.SliceOfN(name, 0, 3).Draw(t, "repos"), Removed: rapid.Bool().Draw(t, "removed")}
		f := rules.Facts{Event: event.Draw(t, "event"), Repo: strings.ToUpper(name.Draw(t, "repo")), Bot: rapid.Bool().Draw(t, "bot")}
		ok, why := rules.Matches(d, f)
		want := !d.Removed && !f.Bot && slices.Contains(d.Events, f.Event) && slices.Contains(d.Repos, strings.ToLower(f.Repo))
		if ok != want || ok == (why != "") {
			t.Fatalf("%v %q", ok, why)
		}
	})
}
