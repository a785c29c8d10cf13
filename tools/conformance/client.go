package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// The client leg: the suite is the server, and starts a program for each scenario that is to be its client. That program is a
// Relay, which asks one house for all of them. There an admin makes a connection to the suite's server, lists what addresses it
// names as private, and logs in where that is asked for; an agent lists and calls everything that is there through the endpoint;
// and the admin removes the connection. What the suite sees is the broker.

// trial is one scenario. The suite gives it to the program in its environment.
type trial struct {
	Scenario string          `json:"scenario"`
	Revision string          `json:"revision"`
	URL      string          `json:"url"`
	Context  json.RawMessage `json:"context,omitempty"`
}

// Relay is the program that the suite starts: it hands the scenario to the house at an address, and says how that went.
func Relay(ctx context.Context, at, serverURL string, out io.Writer) error {
	t := trial{Scenario: os.Getenv("MCP_CONFORMANCE_SCENARIO"), Revision: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"), URL: serverURL}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		t.Context = json.RawMessage(text)
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s did not go through", t.Scenario)
	}
	return nil
}

// trials takes the scenarios of a leg from the relays.
type trials struct {
	site   *site
	person *person
	at     string
	server http.Server
	ended  chan error
	turns  chan struct{} // a few at once: the suite starts all
	alone  sync.RWMutex  // held whole by a scenario that measures time
}

const trialsAtOnce = 4

func (s *site) openTrials(ctx context.Context) (*trials, error) {
	p, err := s.seat(ctx)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &trials{site: s, person: p, at: "http://" + l.Addr().String(), ended: make(chan error, 1), turns: make(chan struct{}, trialsAtOnce)}
	t.server.Handler = http.HandlerFunc(t.serve)
	go func() { t.ended <- t.server.Serve(l) }()
	return t, nil
}

func (t *trials) close() error {
	err := t.server.Close() // the suite has ended, and its relays with it
	if ended := <-t.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func (t *trials) serve(w http.ResponseWriter, r *http.Request) {
	var one trial
	err := json.NewDecoder(io.LimitReader(r.Body, maxMessage)).Decode(&one)
	if err == nil {
		select {
		case t.turns <- struct{}{}:
			defer func() { <-t.turns }()
			err = t.hold(r.Context(), one)
		case <-r.Context().Done():
			return
		}
	}
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintln(w, err) // the suite keeps it beside its checks
	}
}

func (t *trials) hold(ctx context.Context, one trial) (err error) {
	if one.Scenario == "sse-retry" { // it says how late a reconnection may be
		t.alone.Lock()
		defer t.alone.Unlock()
	} else {
		t.alone.RLock()
		defer t.alone.RUnlock()
	}
	c, err := t.connection(one)
	if err != nil {
		return err
	}
	defer func() {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, t.site.ask(over, http.MethodDelete, "/v1/connections/"+c.name, nil, nil))
	}()
	if c.body.OAuth.Flow == connection.ClientCredentials {
		// Nobody logs in, so nobody is told which address is not listed. Whoever began a login would be.
		c.body.OAuth.Flow = connection.AuthorizationCode
		if err := t.define(ctx, c); err != nil {
			return err
		}
		if _, err := t.begin(ctx, c); err != nil {
			return err
		}
		c.body.OAuth.Flow = connection.ClientCredentials
	}
	if err := t.define(ctx, c); err != nil {
		return err
	}
	if !c.empty {
		if err := t.await(ctx, c); err != nil {
			return err
		}
	}
	return t.use(ctx, c, one)
}

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

// patience of a trial: the suite's own is longer.
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
