package up

//lint:file-ignore SA1019 logging and sampling are to leave the protocol in 2027; until then they are tested

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
)

// What an external agent is given over MCP is what its provider's server said, by its grants and on the record, in both eras
// of the protocol.
func TestMCP(t *testing.T) {
	w := newMCPWorld(t, nil)
	for era, opts := range eras {
		t.Run(era, func(t *testing.T) {
			name := "s" + era[:4]
			p := provide(t, opts)
			w.provider(name, p.url, 7)
			w.agent(name)
			w.agent("other" + name)
			for i, tool := range []string{"give", "fail", "work", "hang", "elicit", "completion/complete"} {
				w.grant(name, fmt.Sprint(name, i), name+"."+tool)
			}
			w.grant(name, name+"read", name+".resources/read", func(g *grant.Created) { g.Selector.URIs = []string{"file:///open/*"} })
			w.grant(name, name+"prompt", name+".prompts/get", func(g *grant.Created) { g.Condition = `args.name == "hello"` })
			mcpCase{t, w, p, era, name}.all()
		})
	}
}

type mcpCase struct {
	*testing.T
	w    *mcpWorld
	p    *provided
	era  string
	name string
}

func (c mcpCase) all() {
	c.Run("gridctl/gridctl#848 stacklok/toolhive#5655 faithful", c.faithful)
	c.Run("IBM/mcp-context-forge#4302 in order", c.inOrder)
	c.Run("Kuadrant/mcp-gateway#710 reshaprio/reshapr#154 a tool's error", c.toolError)
	c.Run("stacklok/toolhive#5827 denied", c.denied)
	c.Run("asked", c.asked)
	c.Run("sampling", c.sampling)
	c.Run("cancelled", c.cancelled)
	c.Run("resources", c.resources)
	c.Run("prompts", c.prompts)
	c.Run("obot-platform/obot#3300 revoked", c.revoked)
}

func (c mcpCase) tool(name string) string { return c.name + "__" + name }

func (c mcpCase) faithful(t *testing.T) {
	s, said := c.w.dial(t, c.name, c.era, "/mcp", nil)
	var found *mcp.Tool
	for tool, err := range s.Tools(t.Context(), nil) {
		must(t, err)
		if tool.Name == c.tool("give") {
			found = tool
		}
	}
	if found == nil || found.Title != "Give <it>" || !found.Annotations.ReadOnlyHint {
		t.Fatalf("%+v", found)
	}
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("give"), Arguments: map[string]any{"n": 1}})
	must(t, err)
	for _, want := range []string{`"outputSchema":{`, `"structuredContent":` + givenContent, `"example.com/n":"v"`, `"_meta":{"k":"v"}`, `"data":"AP8="`, `\u003cb\u003e`} {
		if !strings.Contains(said.text(), want) {
			t.Errorf("%s is not in\n%s", want, said.text())
		}
	}
	if !strings.Contains(said.text(), "event: message\n") {
		t.Error("an event has no name")
	}
	if strings.Contains(said.text(), "execwarden/outcome") {
		t.Error("a result says more than its server did")
	}
	// At the connection's own address a tool has its own name.
	own, _ := c.w.dial(t, c.name, c.era, "/mcp/c/"+c.name, nil)
	if _, err := own.CallTool(t.Context(), &mcp.CallToolParams{Name: "give"}); err != nil {
		t.Error(err)
	}
}

// Progress and log lines come in order and before the result: on the wire, since a client may hand them on later.
func (c mcpCase) inOrder(t *testing.T) {
	s, said := c.w.dial(t, c.name, c.era, "/mcp", nil)
	meta := mcp.Meta{"progressToken": "mine"}
	if c.era == sessions {
		must(t, s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
	} else {
		meta[mcp.MetaKeyLogLevel] = "debug"
	}
	before := len(said.text())
	var want []string
	for range 5 {
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("work"), Meta: meta})
		must(t, err)
		for i := range 3 {
			want = append(want, fmt.Sprintf("mine %d/3", i+1), fmt.Sprintf("warning %d", i+1))
		}
		want = append(want, "result")
	}
	var got []string
	for line := range strings.Lines(said.text()[before:]) {
		raw, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "data: ")
		if !ok || raw == "" { // an event of the transport's own
			continue
		}
		var m struct {
			Method string
			Params struct {
				Token    string `json:"progressToken"`
				Progress int
				Total    int
				Level    string
				Data     int
			}
		}
		must(t, json.Unmarshal([]byte(raw), &m))
		switch m.Method {
		case "notifications/progress":
			got = append(got, fmt.Sprintf("%s %d/%d", m.Params.Token, m.Params.Progress, m.Params.Total))
		case "notifications/message":
			got = append(got, fmt.Sprintf("%s %d", m.Params.Level, m.Params.Data))
		case "":
			got = append(got, "result")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("on the wire: %q, want %q", got, want)
	}
}

func (c mcpCase) toolError(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("fail")})
	if err != nil || !r.IsError || r.Content[0].(*mcp.TextContent).Text != "it failed" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, ev := range c.w.recorded(t, "call.finished", some(c.name+".fail")) {
		if ev := ev.(call.Finished); ev.Tool == c.name+".fail" && !ev.ToolError {
			t.Errorf("recorded as a success: %+v", ev)
		}
	}
}

// wire gives the JSON-RPC error of an error.
func wire(t *testing.T, err error) (code int64, data struct{ Code, Call, Grant string }) {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		t.Fatalf("no error of JSON-RPC: %v", err)
	}
	if len(e.Data) > 0 {
		must(t, json.Unmarshal(e.Data, &data))
	}
	return e.Code, data
}

func (c mcpCase) denied(t *testing.T) {
	c.w.grant(c.name, c.name+"deny", c.name+".write", func(g *grant.Created) { g.Verdict = grant.Deny })
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("write")})
	code, data := wire(t, err)
	if code != -32050 || data.Code != "denied" || data.Grant != "grt_"+c.name+"deny" || !strings.HasPrefix(data.Call, "call_") {
		t.Errorf("%d %+v", code, data)
	}
	c.w.recorded(t, "call.refused", some(c.name+".write"))
	if n := c.p.effects.Load(); n != 0 {
		t.Errorf("%d effects", n)
	}
	// Without any grant it is the same error, and it is recorded; what is no name at all is another.
	other, _ := c.w.dial(t, "other"+c.name, c.era, "/mcp", nil)
	_, err = other.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("give")})
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
		t.Errorf("%d %+v", code, data)
	}
	_, err = other.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"})
	if code, _ := wire(t, err); code != jsonrpc.CodeInvalidParams {
		t.Errorf("%v", err)
	}
}

func (c mcpCase) asked(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "to " + r.Params.Message}}, nil
	}})
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("elicit")})
	must(t, err)
	if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, "to who?") {
		t.Errorf("%s", text)
	}
	for _, ev := range c.w.recorded(t, "call.asked", some(c.name+".elicit")) {
		if ev := ev.(call.Asked); ev.Tool == c.name+".elicit" && (ev.Method != "elicitation/create" || !strings.Contains(string(ev.Body.Params), "who?")) {
			t.Errorf("%+v", ev)
		}
	}
	if c.era == sessions {
		for _, ev := range c.w.recorded(t, "call.answered", some(c.name+".elicit")) {
			if ev := ev.(call.Answered); ev.Tool == c.name+".elicit" && !strings.Contains(string(ev.Body.Result), "to who?") {
				t.Errorf("%+v", ev)
			}
		}
	} else { // the answer is in the request that followed
		c.w.recorded(t, "call.finished", some(c.name+".elicit"))
	}
}

func (c mcpCase) sampling(t *testing.T) {
	asked := make(chan struct{}, 4)
	opts := &mcp.ClientOptions{CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
		asked <- struct{}{}
		return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "I say"}}, nil
	}}
	c.w.grant(c.name, c.name+"tool", c.name+".sample")
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", opts)
	if r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("sample")}); err == nil && !r.IsError {
		t.Fatalf("no grant names it, and it was asked: %+v", r.Content)
	}
	if len(asked) != 0 {
		t.Fatal("the client was asked")
	}
	refused := false
	for _, ev := range c.w.recorded(t, "call.asked", some(c.name+".sample")) {
		ev := ev.(call.Asked)
		refused = refused || ev.Tool == c.name+".sample" && ev.Refused != ""
	}
	if !refused {
		t.Error("the refusal is not recorded")
	}
	c.w.grant(c.name, c.name+"sampling", c.name+".sampling/createMessage")
	var r *mcp.CallToolResult
	buskit.Eventually(t, "the grant is known", func() (ok bool) {
		var err error
		r, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("sample")})
		return err == nil && !r.IsError
	})
	if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, "I say") {
		t.Errorf("%s", text)
	}
}

func (c mcpCase) cancelled(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: c.tool("hang")}); err == nil {
			t.Error("it answered")
		}
	})
	<-c.p.hanging
	cancel()
	calling.Wait()
	<-c.p.ended
	c.w.recorded(t, "call.cancelled", some(c.name+".hang"))
}

func (c mcpCase) resources(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	if caps := s.InitializeResult().Capabilities; caps.Resources == nil || !caps.Resources.Subscribe || !caps.Resources.ListChanged {
		t.Errorf("%+v", caps.Resources)
	}
	if c.era == sessions {
		err := s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "file:///open/a.txt"})
		if err == nil || !strings.Contains(err.Error(), "does not tell of changes") { // and is not taken for one that does
			t.Errorf("its server tells of no changes, and is subscribed to: %v", err)
		}
	}
	list, err := s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != "file:///open/a.txt" {
		t.Fatalf("%+v, %v", list, err)
	}
	r, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///open/a.txt"})
	if err != nil || r.Contents[0].Text != "of file:///open/a.txt" {
		t.Errorf("%+v, %v", r, err)
	}
	own, _ := c.w.dial(t, c.name, c.era, "/mcp/c/"+c.name, nil)
	_, err = own.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///closed/b.txt"})
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
		t.Errorf("%d %+v", code, data)
	}
	c.w.recorded(t, "call.refused", some(c.name+".resources/read"))
	other, _ := c.w.dial(t, "other"+c.name, c.era, "/mcp", nil)
	if list, err := other.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func (c mcpCase) prompts(t *testing.T) {
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	list, err := s.ListPrompts(t.Context(), nil)
	if err != nil || len(list.Prompts) != 1 || list.Prompts[0].Name != c.tool("hello") {
		t.Fatalf("%+v, %v", list, err)
	}
	r, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: c.tool("hello")})
	if err != nil || r.Messages[0].Content.(*mcp.TextContent).Text != "hello" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: c.tool("secret")})
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
		t.Errorf("%d %+v", code, data)
	}
	done, err := s.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: c.tool("hello")}, Argument: mcp.CompleteParamsArgument{Name: "a", Value: "b"}})
	if err != nil || !slices.Equal(done.Completion.Values, []string{"hello=b"}) {
		t.Errorf("%+v, %v", done, err)
	}
}

// The next call is denied, the list says that it changed, and what is open ends with its token.
func (c mcpCase) revoked(t *testing.T) {
	changed := make(chan struct{}, 100)
	s, _ := c.w.dial(t, c.name, c.era, "/mcp", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("give")})
	must(t, err)
	_, err = c.w.Revoke(t.Context(), c.name+"0", "enough")
	must(t, err)
	_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("give")})
	if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
		t.Errorf("%d %+v", code, data)
	}
	<-changed
	// A call in flight holds no revocation up, and is cut off with its token.
	issued := c.w.token(c.name)
	hung, _ := c.w.dial(t, c.name, c.era, "/mcp", nil)
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := hung.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("hang")}); err == nil {
			t.Error("it answered")
		}
	})
	<-c.p.hanging
	done, err := c.w.RevokeToken(t.Context(), issued.Token, "stolen")
	if err != nil || len(done.Fenced) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	calling.Wait()
	<-c.p.ended
	if _, err := hung.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool("fail")}); err == nil {
		t.Error("the token was revoked, and calls")
	}
}
