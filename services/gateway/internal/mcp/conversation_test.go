package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A session hears that each of its lists may be another one, and of nothing that was put in to say so.
func TestAnnounce(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{
		Tools: &mcp.ToolCapabilities{ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{ListChanged: true},
	}})
	heard := make(chan string, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { heard <- "tools" },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { heard <- "prompts" },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { heard <- "resources" },
	})
	there, here := mcp.NewInMemoryTransports()
	served, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	announce(server)
	for left := map[string]bool{"tools": true, "prompts": true, "resources": true}; len(left) > 0; {
		delete(left, <-heard)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 0 {
		t.Errorf("%+v, %v", tools, err)
	}
	_ = session.Close()
	_ = served.Wait()
}

// A conversation without sessions is another one after so many calls or so long, and what the agent read goes along.
func TestConversationIsBounded(t *testing.T) {
	s := newSessions()
	defer s.close()
	c, _ := s.without(auth.Agent{Tenant: "tnt_main", Agent: "agt_laptop", Token: "tok_1"}, "", func(*conversation) {})
	now := time.Now()
	first := c.run(now)
	c.addTaint([]string{"con_web"})
	if _, err := id.ParseRun(string(first)); err != nil || !strings.HasPrefix(string(first), "mcp_") {
		t.Fatalf("%s: %v", first, err)
	}
	for range maxCalls - 1 {
		if c.run(now) != first {
			t.Fatal("another conversation too soon")
		}
	}
	second := c.run(now)
	if second == first || c.run(now.Add(maxAge+time.Second)) == second {
		t.Error("the conversation goes on without end")
	}
	if got := c.tainted(); len(got) != 1 {
		t.Errorf("taint %v", got)
	}
	if other, _ := s.without(auth.Agent{Tenant: "tnt_main", Agent: "agt_laptop", Token: "tok_2"}, "", func(*conversation) {}); other == c {
		t.Error("another token has the same conversation")
	}
}

// A tool has one name, whatever is asked first; a long one is shortened, and found again.
func TestNames(t *testing.T) {
	var n names
	long := "connection-of-a-name-that-is-rather-long.tool_of_a_name_that_is_rather_long_too"
	name := n.of(long)
	if len(name) != maxName || n.of(long) != name {
		t.Errorf("%q has %d bytes", name, len(name))
	}
	if full, ok := n.find(name); !ok || full != long {
		t.Errorf("%q, %v", full, ok)
	}
	if got := n.of("github.create_issue"); got != "github__create_issue" {
		t.Errorf("%q", got)
	}
}

// The agent's calls at once are bounded, and one agent takes nothing of another's.
func TestCallsAtOnce(t *testing.T) {
	s := newSessions()
	defer s.close()
	a, b := auth.Agent{Tenant: "tnt_main", Agent: "agt_a"}, auth.Agent{Tenant: "tnt_main", Agent: "agt_b"}
	leave, err := s.enter(a, Limits{AtOnce: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.enter(a, Limits{AtOnce: 1}, time.Now()); err == nil {
		t.Error("two at once, and one is the most")
	}
	other, err := s.enter(b, Limits{AtOnce: 1}, time.Now())
	if err != nil {
		t.Error(err)
	}
	other()
	leave()
	if leave, err = s.enter(a, Limits{AtOnce: 1}, time.Now()); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}

// A result of what is no MCP server is its JSON; a picture is one.
func TestPlain(t *testing.T) {
	for result, want := range map[string]string{
		`"text"`:                          `{"content":[{"text":"text","type":"text"}]}`,
		`[1]`:                             `{"content":[{"text":"[1]","type":"text"}]}`,
		`{"a":1.0}`:                       `{"content":[{"text":"{\"a\":1.0}","type":"text"}],"structuredContent":{"a":1.0}}`,
		`{"png_base64":"aGk=","url":"u"}`: `{"content":[{"data":"aGk=","mimeType":"image/png","type":"image"},{"text":"{\"url\":\"u\"}","type":"text"}],"structuredContent":{"url":"u"}}`,
		`{"png_base64":7}`:                `{"content":[{"text":"{\"png_base64\":7}","type":"text"}],"structuredContent":{"png_base64":7}}`,
	} {
		raw, err := json.Marshal(plain(json.RawMessage(result), false, false))
		if err != nil || string(raw) != want {
			t.Errorf("%s became %s, %v", result, raw, err)
		}
	}
}
