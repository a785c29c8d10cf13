package toolbroker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// A tool that is about no repository needs none in its grant; one that is about some still touches none without.
func TestToolsAboutNoRepository(t *testing.T) {
	h := start(t)
	h.says(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/user" {
			t.Errorf("GitHub is asked for %s", r.URL.Path)
		}
		fmt.Fprint(w, `{"login":"octocat","id":1,"type":"User"}`)
	})
	for name, tool := range map[id.Grant]string{"grt_me": "github.get_me", "grt_list": "github.list_issues"} {
		h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: string(name), Event: grant.Created{Grant: name, Agent: "agt_a", Approval: grant.Never, Selector: grant.Selector{Tool: tool}}}))
	}
	h.request("call_1", "github.get_me", `{}`, nil)
	if done, _ := await[call.Finished](h, "call_1"); done.ToolError || !strings.Contains(string(done.Body.Result), "octocat") {
		t.Errorf("%+v", done)
	}
	h.request("call_2", "github.list_issues", `{"owner":"acme","repo":"shop"}`, nil)
	if refused, _ := await[call.Refused](h, "call_2"); !strings.Contains(refused.Reason, "does not include repository acme/shop") {
		t.Errorf("%+v", refused)
	}
	h.request("call_3", "github.list_issues", `{}`, nil)
	if refused, _ := await[call.Refused](h, "call_3"); !strings.Contains(refused.Reason, "owner and repo have to be given") {
		t.Errorf("%+v", refused)
	}
}
