package up

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/services/gateway"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// A call that waits for a person is made once, when that person says so and nobody else, however the client is told of it.
func TestMCPHeld(t *testing.T) {
	w := newMCPWorld(t, func(c *gateway.Config) { c.MCPHeldWait = 300 * time.Millisecond })
	for era, opts := range eras {
		name := "s" + era[:4]
		p := provide(t, opts)
		w.provider(name, p.url, 7)
		w.agent(name)
		w.grant(name, name, name+".write", func(g *grant.Created) { g.Approval = grant.Always; g.Tainted = true })
		w.grant(name, name+"ask", name+".elicit", func(g *grant.Created) {
			g.Approval, g.Condition = grant.Always, `!has(input.inputResponses) || input.inputResponses.it.content.name != "mallory"`
		})
		c := heldCase{mcpCase{t, w, p, era, name}}
		t.Run(era, func(t *testing.T) {
			t.Run("by link and token", c.byToken)
			t.Run("by a person, shown a link", c.byLink)
			t.Run("refused", c.refusedByPerson)
			if era == without {
				t.Run("with answers", c.withAnswers)
			}
		})
	}
}

type heldCase struct{ mcpCase }

// open waits for the approval that waits.
func (c heldCase) open(t *testing.T) (a ask.Approval) {
	t.Helper()
	buskit.Eventually(t, "an approval waits", func() bool {
		list, err := c.w.Approvals(t.Context(), true)
		if err == nil && len(list) > 1 {
			t.Fatalf("%d approvals for one call", len(list))
		}
		if err != nil || len(list) == 0 {
			return false
		}
		a = list[0]
		return true
	})
	return a
}

func text(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }

// status is what an answer says of a call that waits still.
func status(t *testing.T, r *mcp.CallToolResult) (s struct {
	Status, Call, Tool string
	URL                string `json:"approval_url"`
	Resume             string `json:"resume_token"`
}) {
	t.Helper()
	raw, err := json.Marshal(r.StructuredContent)
	must(t, err)
	must(t, json.Unmarshal(raw, &s))
	return s
}

// A client that can show nobody a link is given it, and asks again: with the token, or by the same call.
func (c heldCase) byToken(t *testing.T) {
	before := c.p.effects.Load()
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	same := &mcp.CallToolParams{Name: c.tool("write"), Arguments: map[string]any{"n": 1}}
	first, err := s.CallTool(t.Context(), same)
	must(t, err)
	at := status(t, first)
	if at.Status != "awaiting_approval" || first.IsError || !strings.HasPrefix(at.Call, "call_") || at.Resume == "" || !strings.HasPrefix(at.URL, c.w.endpoints.API+"/approvals/") {
		t.Fatalf("%+v of %s", at, text(first))
	}
	// The same call again, several at once, and with the token: it is that one.
	var again sync.WaitGroup
	for i := range 4 {
		again.Go(func() {
			p := *same
			if i%2 == 0 {
				p.Meta = mcp.Meta{"execwarden/resume": at.Resume}
			}
			r, err := s.CallTool(t.Context(), &p)
			if err != nil || status(t, r).Call != at.Call {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	again.Wait()
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("write"), Meta: mcp.Meta{"execwarden/resume": "call_of_another"}}); err == nil {
		t.Error("a token of no call was taken")
	}
	a := c.open(t)
	if !strings.HasSuffix(at.URL, string(a.Approval)) {
		t.Errorf("the link is %s, the approval %s", at.URL, a.Approval)
	}
	c.w.approve(a)
	p := *same
	p.Meta = mcp.Meta{"execwarden/resume": at.Resume}
	var r *mcp.CallToolResult
	buskit.Eventually(t, "it is made", func() bool {
		r, err = s.CallTool(t.Context(), &p)
		must(t, err)
		return status(t, r).Status == ""
	})
	if text(r) != fmt.Sprintf(`effect %d {"n":1}`, before+1) || c.p.effects.Load() != before+1 {
		t.Errorf("%s, %d effects", text(r), c.p.effects.Load()-before)
	}
	// Its answer was given: the same call now is a new one, that waits for a person of its own.
	r, err = s.CallTool(t.Context(), same)
	must(t, err)
	if now := status(t, r); now.Status != "awaiting_approval" || now.Call == at.Call {
		t.Errorf("%+v", now)
	}
	if c.p.effects.Load() != before+1 {
		t.Errorf("%d effects", c.p.effects.Load()-before)
	}
	c.w.refuse(t, c.open(t))
}

// A client that can is asked to show a person the link. What it answers decides nothing, and no form is ever used.
func (c heldCase) byLink(t *testing.T) {
	before := c.p.effects.Load()
	var mu sync.Mutex
	var shown []string
	s, said := c.w.dial(t, c.name, c.era, "/mcp", &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}, Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			shown = append(shown, r.Params.Mode+" "+r.Params.URL)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approved": true, "approve": true}}, nil
		},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
	p := &mcp.CallToolParams{Name: c.tool("write"), Arguments: map[string]any{"n": 2}}
	if c.era == sessions {
		r, err := s.CallTool(t.Context(), p)
		must(t, err)
		if status(t, r).Status != "awaiting_approval" { // it was accepted by then
			t.Fatalf("%s", text(r))
		}
		mu.Lock()
		if len(shown) != 1 || !strings.HasPrefix(shown[0], "url "+c.w.endpoints.API+"/approvals/") {
			t.Errorf("%q", shown)
		}
		mu.Unlock()
	} else {
		r, err := s.CallTool(t.Context(), p)
		must(t, err)
		one, ok := r.InputRequests["approval"].(*mcp.ElicitParams)
		if !r.NeedsInput() || len(r.InputRequests) != 1 || !ok || one.Mode != "url" || !strings.HasPrefix(one.URL, c.w.endpoints.API+"/approvals/") || one.RequestedSchema != nil {
			t.Fatalf("%+v", r)
		}
		p.RequestState = r.RequestState
		p.InputResponses = mcp.InputResponseMap{"approval": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approved": true}}}
		r, err = s.CallTool(t.Context(), p) // what the client says is no approval
		must(t, err)
		if !r.NeedsInput() && status(t, r).Status != "awaiting_approval" {
			t.Fatalf("%+v", r)
		}
		forged := *p
		forged.RequestState = "execwarden:call_019b0000-0000-7000-8000-000000000000"
		if _, err := s.CallTool(t.Context(), &forged); err == nil {
			t.Error("a state that nobody gave was taken")
		}
	}
	if c.p.effects.Load() != before {
		t.Fatal("the client's answer approved it")
	}
	c.w.approve(c.open(t))
	var r *mcp.CallToolResult
	buskit.Eventually(t, "it is made", func() bool {
		var err error
		r, err = s.CallTool(t.Context(), p)
		must(t, err)
		return !r.NeedsInput() && status(t, r).Status == ""
	})
	if text(r) != fmt.Sprintf(`effect %d {"n":2}`, before+1) || c.p.effects.Load() != before+1 {
		t.Errorf("%s, %d effects", text(r), c.p.effects.Load()-before)
	}
	if strings.Contains(said.text(), `"mode":"form"`) || strings.Contains(said.text(), "requestedSchema") {
		t.Error("a form was used")
	}
	// The call was answered: asked for again from the start, it is another.
	p.RequestState, p.InputResponses = "", nil
	if r, err := s.CallTool(t.Context(), p); err != nil || !r.NeedsInput() && status(t, r).Status != "awaiting_approval" {
		t.Errorf("%+v, %v", r, err)
	}
	c.w.refuse(t, c.open(t))
}

func (c heldCase) refusedByPerson(t *testing.T) {
	before := c.p.effects.Load()
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	p := &mcp.CallToolParams{Name: c.tool("write"), Arguments: map[string]any{"n": 3}}
	_, err := s.CallTool(t.Context(), p)
	must(t, err)
	c.w.refuse(t, c.open(t))
	buskit.Eventually(t, "it is refused", func() bool {
		_, err = s.CallTool(t.Context(), p)
		return err != nil
	})
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" || c.p.effects.Load() != before {
		t.Errorf("%d %+v", code, data)
	}
}

// What a client answers to what its server asked is part of the call: whoever approves sees it, approves no other answer with
// it, and a grant's condition may look at it.
func (c heldCase) withAnswers(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
	made := func(p *mcp.CallToolParams) (r *mcp.CallToolResult) {
		buskit.Eventually(t, "it is made", func() bool {
			var err error
			r, err = s.CallTool(t.Context(), p)
			must(t, err)
			return r.NeedsInput() || status(t, r).Status == ""
		})
		return r
	}
	first := &mcp.CallToolParams{Name: c.tool("elicit"), Arguments: map[string]any{"n": 4}}
	_, err := s.CallTool(t.Context(), first)
	must(t, err)
	a := c.open(t)
	if len(a.Body.Input) != 0 {
		t.Errorf("answers to nothing: %s", a.Body.Input)
	}
	c.w.approve(a)
	asked := made(first)
	if asked.InputRequests["it"] == nil {
		t.Fatalf("%+v", asked)
	}
	answering := func(name string) *mcp.CallToolParams {
		p := *first
		p.RequestState = asked.RequestState
		p.InputResponses = mcp.InputResponseMap{"it": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}}
		return &p
	}
	calls := map[string]string{}
	for _, name := range []string{"ada", "<b>eve"} {
		r, err := s.CallTool(t.Context(), answering(name))
		must(t, err)
		if calls[name] = status(t, r).Call; calls[name] == "" {
			t.Fatalf("%s", text(r))
		}
	}
	_, err = s.CallTool(t.Context(), answering("mallory"))
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
		t.Errorf("%d %+v", code, data)
	}
	var waiting map[string]ask.Approval
	buskit.Eventually(t, "two approvals wait", func() bool {
		list, err := c.w.Approvals(t.Context(), true)
		waiting = map[string]ask.Approval{}
		for _, one := range list {
			waiting[string(one.Call)] = one
		}
		return err == nil && len(list) == 2
	})
	ada, eve := waiting[calls["ada"]], waiting[calls["<b>eve"]]
	if !strings.Contains(string(ada.Body.Input), `"name":"ada"`) || !strings.Contains(string(eve.Body.Input), "eve") || ada.Digest == eve.Digest || ada.Digest == a.Digest {
		t.Fatalf("%s %s, %s %s", ada.Body.Input, ada.Digest, eve.Body.Input, eve.Digest)
	}
	if _, err := c.w.Decide(t.Context(), ada.Approval, client.Decision{Digest: eve.Digest, Approve: true}); err == nil {
		t.Error("an approval of another answer counts")
	}
	_, err = c.w.Decide(t.Context(), ada.Approval, client.Decision{Digest: ada.Digest, Approve: true})
	must(t, err)
	if r := made(answering("ada")); !strings.Contains(text(r), "ada") {
		t.Errorf("%s", text(r))
	}
	if r, err := s.CallTool(t.Context(), answering("<b>eve")); err != nil || status(t, r).Status != "awaiting_approval" {
		t.Errorf("%+v, %v", r, err)
	}
	c.w.refuse(t, eve)
}

// refuse says no, once it may be said.
func (w *mcpWorld) refuse(t *testing.T, a ask.Approval) {
	t.Helper()
	_, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Note: "no"})
	must(t, err)
	buskit.Eventually(t, "nothing waits", func() bool {
		list, err := w.Approvals(t.Context(), true)
		return err == nil && len(list) == 0
	})
}
