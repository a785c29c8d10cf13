package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// party is the connection of a trial.
type party struct {
	name    string
	body    connectionBody
	empty   bool     // its server has no tools
	args    []called // that are called, besides what is listed
	attempt string   // the login that was finished last
	logins  int
}

type connectionBody struct {
	Type       string           `json:"type"`
	URL        string           `json:"url"`
	Private    []string         `json:"private"`
	Trusted    bool             `json:"trusted"`
	OAuth      connection.OAuth `json:"oauth,omitzero"`
	Credential string           `json:"credential,omitempty"`
}

type called struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"arguments"`
}

// document is the client that the suite knows by its metadata document. The house has no public https address to have one of its own at.
const document = "https://conformance-test.local/client-metadata.json"

func (t *trials) connection(one trial) (*party, error) {
	var given struct {
		ClientID     string   `json:"client_id"`
		ClientSecret string   `json:"client_secret"`
		Calls        []called `json:"toolCalls"`
	}
	if one.Context != nil {
		if err := json.Unmarshal(one.Context, &given); err != nil {
			return nil, err
		}
	}
	c := &party{name: fmt.Sprintf("trial%d", t.site.trials.Add(1)), args: given.Calls, empty: one.Scenario == "initialize" || one.Scenario == "request-metadata"}
	c.body = connectionBody{Type: "mcp", URL: one.URL, Trusted: true}
	if err := c.list(one.URL); err != nil {
		return nil, err
	}
	if strings.HasPrefix(one.Scenario, "auth/") {
		c.body.OAuth = connection.OAuth{Flow: connection.AuthorizationCode, ClientID: given.ClientID}
		c.body.Credential = given.ClientSecret
	}
	switch {
	case strings.HasPrefix(one.Scenario, "auth/client-credentials"):
		c.body.OAuth.Flow = connection.ClientCredentials
	case one.Scenario == "auth/basic-cimd":
		c.body.OAuth.ClientID = document
	}
	return c, nil
}

// list lists a server on this machine as private: localhost is two addresses.
func (c *party) list(at string) error {
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	port, err := net.LookupPort("tcp", u.Port())
	if err != nil || u.Hostname() != "localhost" {
		return fmt.Errorf("%q is not on this machine: %w", at, err)
	}
	for _, a := range []string{"127.0.0.1", "::1"} {
		c.body.Private = append(c.body.Private, netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port)).String())
	}
	return nil
}

func (t *trials) define(ctx context.Context, c *party) error {
	return t.site.ask(ctx, http.MethodPut, "/v1/connections/"+c.name, c.body, nil)
}

// row is what the API says of a connection.
type row struct {
	Connection string            `json:"connection"`
	Tools      []connection.Tool `json:"tools"`
	Login      *struct {
		State   string `json:"state"`
		Attempt string `json:"attempt"`
		Reason  string `json:"reason"`
	} `json:"login"`
}

// trialWait is the patience of a trial: the suite's own is longer.
const trialWait = 20 * time.Second

// await waits until the connection has its tools, and logs in whenever it says that this helps.
func (t *trials) await(ctx context.Context, c *party) error {
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	for {
		var all struct {
			Connections []row `json:"connections"`
		}
		if err := t.site.ask(ctx, http.MethodGet, "/v1/connections", nil, &all); err != nil {
			return err
		}
		for _, r := range all.Connections {
			if r.Connection != "con_"+c.name {
				continue
			}
			if len(r.Tools) > 0 {
				return nil
			}
			l := r.Login
			if l == nil || l.Attempt != c.attempt { // what a login came to is told a moment later
				continue
			}
			switch helps := strings.Contains(l.Reason, "a new login"); {
			case c.body.OAuth.Flow == connection.AuthorizationCode && (l.State == string(connection.LoginNeeded) || helps):
				if err := t.login(ctx, c); err != nil {
					return err
				}
			case l.Reason != "" && l.Attempt != "":
				return errors.New(l.Reason)
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("the server's tools are not listed")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// maxLogins is how often a person logs in again because the server asks for more, before they ask somebody.
const maxLogins = 3

// names finds the address in the problem of one that is not listed as private.
var names = regexp.MustCompile(`"(http://localhost:[0-9]+)[^"]*", is neither https nor`)

func (t *trials) login(ctx context.Context, c *party) error {
	if c.logins++; c.logins > maxLogins {
		return errors.New("it asks for one login after another")
	}
	begun, err := t.begin(ctx, c)
	if err != nil {
		return err
	}
	c.attempt = begun.Attempt
	return t.person.connect(ctx, begun.URL)
}

type begun struct {
	Attempt string `json:"attempt"`
	URL     string `json:"url"`
}

// begin begins a login, and has an authorization server that is not listed as private listed, as who runs one inside does.
func (t *trials) begin(ctx context.Context, c *party) (out begun, err error) {
	for range 2 {
		err = t.site.ask(ctx, http.MethodPost, "/v1/connections/"+c.name+"/login", nil, &out)
		m := names.FindStringSubmatch(fmt.Sprint(err))
		if err == nil || m == nil {
			return out, err
		}
		if err := c.list(m[1]); err != nil {
			return out, err
		}
		if err := t.define(ctx, c); err != nil {
			return out, err
		}
	}
	return out, err
}

// use has an agent list and call everything, in the scenario's revision.
func (t *trials) use(ctx context.Context, c *party, one trial) error {
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "trial", Version: "1"}, &mcp.ClientOptions{
		// Who answers leaves everything to its default.
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	bearer := &http.Client{Transport: withToken{t.site.tokens[trialsAgent]}}
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: t.site.warden.At().API + "/mcp/c/" + c.name, HTTPClient: bearer, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: one.Revision})
	if err != nil {
		return fmt.Errorf("the endpoint: %w", err)
	}
	defer s.Close()
	listed, err := s.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	calls := c.args
	if calls == nil {
		for _, tool := range listed.Tools {
			calls = append(calls, called{tool.Name, arguments(tool, listed.Tools)})
		}
	}
	for _, one := range calls {
		if err := t.call(ctx, c, s, one); err != nil {
			return err
		}
	}
	resources, err := s.ListResources(ctx, nil)
	if err != nil {
		return err
	}
	for _, r := range resources.Resources {
		if _, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.URI}); err != nil {
			return err
		}
	}
	prompts, err := s.ListPrompts(ctx, nil)
	if err != nil {
		return err
	}
	for _, p := range prompts.Prompts {
		if _, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: p.Name}); err != nil {
			return err
		}
	}
	return nil
}

// call calls a tool, and again when somebody has logged in because it said so.
func (t *trials) call(ctx context.Context, c *party, s *mcp.ClientSession, one called) error {
	for {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: one.Name, Arguments: one.Args})
		var no *jsonrpc.Error
		if !errors.As(err, &no) || !strings.Contains(string(no.Data), `"`+string(problem.Unauthenticated)+`"`) || c.body.OAuth.Flow != connection.AuthorizationCode {
			if err != nil {
				err = fmt.Errorf("%s: %w", one.Name, err)
			}
			return err
		}
		if err := t.login(ctx, c); err != nil {
			return errors.Join(no, err)
		}
	}
}

// arguments are what a tool of the suite is called with.
func arguments(tool *mcp.Tool, all []*mcp.Tool) json.RawMessage {
	switch tool.Name {
	case "add_numbers":
		return json.RawMessage(`{"a":5,"b":3}`)
	case "valid_tool":
		return json.RawMessage(`{"region":"us-west1"}`)
	case "json_schema_echo": // it wants to see another tool's schema as it came through
		for _, other := range all {
			if other.Name == "json_schema_2020_12_tool" {
				raw, _ := json.Marshal(map[string]any{"schema": other.InputSchema}) // it was JSON
				return raw
			}
		}
	}
	return json.RawMessage(`{}`)
}

// withToken adds an agent's token.
type withToken struct{ token string }

// RoundTrip implements http.RoundTripper.
func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return http.DefaultTransport.RoundTrip(r)
}
