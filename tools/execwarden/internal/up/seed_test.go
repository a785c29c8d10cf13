package up

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// openTickets fetches a public page, keeps what matters of it, and opens a ticket for that in the internal API.
const openTickets = `type Component = {name: string, status: string};
const response = await fetch(%PAGE%);
const page: {components: Component[]} = await response.json();
const bad = page.components.filter((c) => c.status !== "operational");
console.log(bad.length + " of " + page.components.length + " components are not operational");
const tickets = await Promise.all(bad.map((c) => tools.tickets.create_ticket({
	title: c.name + " is " + c.status, component: c.name, idempotencyKey: "status-" + c.name})));
return {opened: tickets.map((t) => t.id + " " + t.component)};`

// A webhook starts a hosted run without any machine. The run's script fetches public data, transforms it, and calls a
// granted internal API: the effect is there, the transcript says so, every step is in the ledger under what caused it,
// and one trace goes through all of it.
func TestSeedExample1(t *testing.T) {
	c := &traceCollector{names: map[string]map[string]bool{}, links: map[string]map[string]bool{}}
	collector := httptest.NewServer(c)
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	w := newWorld(t)
	source := strings.ReplaceAll(openTickets, "%PAGE%", "{{quote (find \"(?m)^status page: *(\\\\S+)\" .Prompt)}}")
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-watch", Turns: []scriptmodel.Turn{
		{Text: "I look at the page.", Calls: []scriptmodel.Call{{Tool: "runtime__run_javascript", Args: map[string]string{"source": source}}}},
		{Text: `The script says {{.Result "runtime__run_javascript"}}`}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	put := func(g grant.Created) error { g.Agent = "agt_watch"; return w.PutGrant(t.Context(), g) }
	for _, err := range []error{
		w.PutConnection(t.Context(), connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: w.api.URL(), Private: []string{hostport(w.api.URL())}, Trusted: true}, ""),
		w.PutAgent(t.Context(), agent.Defined{Agent: "agt_watch", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Open tickets for what is broken."},
			Model:   agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-watch", Private: []string{hostport(model.URL())}},
			Runtime: agent.Runtime{Enabled: true, Egress: []agent.Egress{{Hosts: []string{hostport(w.page.URL())}, Private: []string{hostport(w.page.URL())}}}}}, ""),
		put(grant.Created{Grant: "grt_javascript", Selector: grant.Selector{Tool: "runtime.run_javascript"}, Approval: grant.Never, Tainted: true}),
		put(grant.Created{Grant: "grt_ticket", Selector: grant.Selector{Tool: "tickets.create_ticket"}, Approval: grant.Never, Tainted: true}),
		w.PutHook(t.Context(), "hook_github", hookSecret),
		w.PutTrigger(t.Context(), trigger.Defined{Trigger: "trg_watch", Hook: "hook_github", Events: []string{"issues.opened"}, Repos: []string{"Codertocat/Hello-World"},
			Agent: "agt_watch", Prompt: "Somebody says that something is broken: {{.Title}}\nstatus page: " + w.page.URL() + "/status.json\n"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) > 0
	})
	w.deliver(guid)
	r := w.ended()

	// The run, and the effect.
	if r.State != "completed" || !strings.Contains(r.Message, `T-1 website`) {
		t.Fatalf("the run ended %s: %s", r.State, r.Message)
	}
	if w.api.Effects() != 1 || w.page.Hits() != 1 {
		t.Errorf("%d tickets, the page was asked %d times", w.api.Effects(), w.page.Hits())
	}
	if machines, err := w.Environments(t.Context()); err != nil || len(machines) != 0 {
		t.Errorf("machines %v, %v", machines, err)
	}

	// The ledger, as it proves it.
	w.mustVerify()
	var js, ticket call.Requested
	var started script.Started
	var fetched script.Fetched
	var finished, opened call.Finished
	var answers []string
	var after client.Cursor
	for more := true; more; {
		page, err := w.Timeline(t.Context(), r.Run, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			envelope, err := e.Envelope()
			if err != nil {
				t.Fatal(err)
			}
			ev, err := envelope.Decode()
			if err != nil {
				t.Fatal(err)
			}
			switch ev := ev.(type) {
			case call.Requested:
				if ev.Tool == "runtime.run_javascript" {
					js = ev
				} else {
					ticket = ev
				}
			case call.Admitted:
				if ev.Route == call.Exec {
					t.Errorf("a machine is asked: %+v", ev)
				}
			case script.Started:
				started = ev
			case script.Fetched:
				fetched = ev
			case call.Finished:
				if ev.Tool == "runtime.run_javascript" {
					finished = ev
				} else {
					opened = ev
				}
			case run.ModelCompleted:
				answers = append(answers, ev.Body.Text)
			}
			if envelope.Correlation == "" {
				t.Errorf("%s is of no trace", e.Kind)
			}
		}
		more, after = page.More, page.Next
	}
	if len(answers) != 2 || answers[0] != "I look at the page." || !strings.Contains(answers[1], "T-1 website") {
		t.Errorf("the transcript is %q", answers)
	}
	if started.Call != js.Call || started.Attempt != 1 || started.Tier == "" {
		t.Errorf("started %+v", started)
	}
	if hops := fetched.Body.Hops; fetched.Call != js.Call || fetched.Status != 200 || len(hops) != 1 || hops[0].URL != w.page.URL()+"/status.json" || hops[0].Address == "" {
		t.Errorf("fetched %+v", fetched)
	}
	if ticket.Tool != "tickets.create_ticket" || ticket.Parent != js.Call || ticket.Agent != "agt_watch" || opened.Call != ticket.Call {
		t.Errorf("the ticket is asked for by %+v, and ends as %+v", ticket, opened)
	}
	host := "fetch:" + hostport(w.page.URL())
	if text := string(finished.Body.Result); !strings.Contains(text, "1 of 3 components are not operational") || !slices.Contains(finished.Taint, host) || !slices.Contains(ticket.Taint, host) {
		t.Errorf("the script ends as %s, taint %v; its call has taint %v", text, finished.Taint, ticket.Taint)
	}

	// The trace.
	w.stop() // flushes what is left
	c.mu.Lock()
	defer c.mu.Unlock()
	found := false
	for id, names := range c.names {
		if !names["deliver webhook"] {
			continue
		}
		found = true
		for _, want := range []string{"agentloop.run_start", "hear agentloop_run", "hear toolbroker_requested", "hear runtime_admitted", "hear toolbroker_admitted", "hear agentloop_call"} {
			if !names[want] {
				t.Errorf("the trace has no span %q", want)
			}
		}
		if !c.links[id]["record "+string(schemas.Activity)] {
			t.Error("the ledger does not link to the trace")
		}
	}
	if !found {
		t.Error("no trace begins with the webhook")
	}
}
