package toolbroker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// What is declared is what the agent's scripts may call now, as its tools are described now.
func TestTypesFollowGrantsAndListings(t *testing.T) {
	h := start(t)
	gateway := h.Conn(t, string(schemas.Gateway))
	types := func(of id.Agent, model bool) (ask.Types, error) {
		return rpc.Ask[ask.Types](t.Context(), gateway, schemas.Toolbroker, "types_show", servicekit.Owner(), ask.ShowTypes{Agent: of, Model: model})
	}
	shown := func(model bool) ask.Types {
		t.Helper()
		got, err := types("agt_a", model)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	schema := `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`
	list := func(description string, tools ...string) {
		body := connection.Tools{}
		for _, name := range tools {
			body.Tools = append(body.Tools, connection.Tool{Name: name, Description: description, Schema: json.RawMessage(schema), Effect: connection.Opaque, Writes: true})
		}
		h.heard(h.Say(schemas.Toolbroker, eventlog.Draft{Key: "con_my-api", Event: connection.Listed{Connection: "con_my-api", Body: body}}))
	}
	if got := shown(false); got.Tools != 2 || !got.Runtime || !strings.Contains(got.Types, "\n  issue_read(args: {") || strings.Contains(got.Types, "get_me") {
		t.Errorf("%+v", got)
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "con_my-api", Event: connection.Defined{Connection: "con_my-api", Type: connection.MCP, URL: "http://127.0.0.1:1"}})
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_api", Event: grant.Created{Grant: "grt_api", Agent: "agt_a", Approval: grant.Never, Selector: grant.Selector{Tool: "my-api.*"}}}))
	list("First", "list-pets", "then", "toJSON")
	if got := shown(false); got.Tools != 3 || !strings.Contains(got.Types, ` "my-api": {
  /** First */
  "list-pets"(args: {id: string}): Promise<any>
 }`) {
		t.Errorf("%+v", got) // two of the names are none that a script could call
	}
	list("Second", "list-pets")
	if got := shown(false); !strings.Contains(got.Types, "/** Second */") || strings.Contains(got.Types, "First") {
		t.Errorf("%+v", got)
	}
	// Nothing that a provider writes makes an answer that is too large, or more than a model is to read.
	var many []string
	for n := range 300 {
		many = append(many, fmt.Sprint("t", n))
	}
	of := func(name string) string { return `"` + name + `":{"description":"` + strings.Repeat("<", 120) + `"}` }
	schema = `{"type":"object","properties":{` + of("a") + "," + of("b") + "," + of("c") + "," + of("d") + "," + of("e") + `}}`
	list(strings.Repeat("<", 240), many...)
	for model, most := range map[bool]int{false: 512 << 10, true: 24 << 10} {
		got := shown(model)
		if got.Tools != 302 || len(got.Types) > most || got.Left > 0 || !strings.Contains(got.Types, "t299") || model != !strings.Contains(got.Types, "<<") {
			t.Errorf("%d bytes, %d bare, %d left: %.2000s", len(got.Types), got.Bare, got.Left, got.Types)
		}
	}
	h.revoke("grt_api")
	if got := shown(false); got.Tools != 2 || strings.Contains(got.Types, "my-api") {
		t.Errorf("%+v", got)
	}
	h.heard(h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted}}))
	if got := shown(true); got.Runtime {
		t.Errorf("%+v", got)
	}
	if _, err := types("agt_nobody", false); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("types of nobody: %v", err)
	}
}
