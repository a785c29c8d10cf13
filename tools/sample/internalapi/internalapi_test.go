package internalapi

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bearer struct {
	token string
	http.Transport
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}

func connect(t *testing.T, s *Server, token string) (*mcp.ClientSession, error) {
	t.Helper()
	b := &bearer{token: token}
	t.Cleanup(b.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	return client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: &http.Client{Transport: b}}, nil)
}

func start(t *testing.T) (*Server, *mcp.ClientSession) {
	t.Helper()
	s := New("tickets-token")
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	session, err := connect(t, s, "tickets-token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return s, session
}

func call(t *testing.T, s *mcp.ClientSession, tool string, args any) (text string, isError bool) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Error(err)
		return "", true
	}
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, res.IsError
}

func TestTools(t *testing.T) {
	t.Parallel()
	_, session := start(t)
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	readOnly := map[string]bool{}
	for _, tool := range tools.Tools {
		readOnly[tool.Name] = tool.Annotations.ReadOnlyHint
	}
	if len(readOnly) != 2 || !readOnly["find_owner"] || readOnly["create_ticket"] {
		t.Errorf("read-only hints: %v", readOnly)
	}
}

func TestFindOwner(t *testing.T) {
	t.Parallel()
	s, session := start(t)
	if text, isError := call(t, session, "find_owner", ownerQuery{"documentation"}); isError || !strings.Contains(text, `"onCall":"Mika Lind"`) {
		t.Errorf("%s, error %v", text, isError)
	}
	if text, isError := call(t, session, "find_owner", ownerQuery{strings.Repeat("x", 1000)}); !isError || len(text) > 200 {
		t.Errorf("%s, error %v", text, isError)
	}
	if s.Effects() != 0 {
		t.Errorf("reading has %d effects", s.Effects())
	}
}

func TestCreateTicketOnce(t *testing.T) {
	t.Parallel()
	s, session := start(t)
	draft := ticketDraft{"Fix the spelling", "documentation", "key-1"}
	first, isError := call(t, session, "create_ticket", draft)
	if isError {
		t.Fatal(first)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if again, isError := call(t, session, "create_ticket", draft); isError || again != first {
				t.Errorf("again: %s, error %v", again, isError)
			}
		})
	}
	wg.Wait()
	for name, bad := range map[string]any{
		"another ticket":    ticketDraft{"Other", "documentation", "key-1"},
		"no key":            ticketDraft{"Other", "documentation", ""},
		"no such component": ticketDraft{"Other", "moon", "key-2"},
		"not an object":     []int{1},
		"unknown argument":  map[string]string{"title": "a", "component": "api", "idempotencyKey": "k", "admin": "true"},
	} {
		if res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "create_ticket", Arguments: bad}); err == nil && !res.IsError {
			t.Errorf("%s: accepted", name)
		}
	}
	if s.Effects() != 1 {
		t.Errorf("%d effects, want 1", s.Effects())
	}
}

func TestTokenIsNeeded(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for _, token := range []string{"", "wrong", "tickets-token2"} {
		if session, err := connect(t, s, token); err == nil {
			_ = session.Close()
			t.Errorf("token %q is accepted", token)
		}
	}
}
