package gateway

import (
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/gateway/internal/issuer"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
)

// Config is the service's own settings.
type Config struct {
	Listen         string        `name:"listen" default:"127.0.0.1:8080" help:"address of the API and the console; TLS is a proxy's in front"`
	PublicURL      string        `name:"public_url" help:"where browsers find the console, such as https://warden.example.com; default: http:// and the address it listens on"`
	Hosts          string        `name:"hosts" help:"further host names under which programs reach the API, separated by commas"`
	OwnerTokenFile string        `name:"owner_token_file" help:"file with an access token of the owner mem_owner of tenant tnt_main, made when there is none, mode 0600"`
	ConnectorsURL  string        `name:"connectors_url" help:"where NATS takes WebSockets, such as http://nats:8080; connectors are passed on to it. Empty: none can connect"`
	MCPCalls       int           `name:"mcp_calls" default:"64" help:"how many calls, lists and searches one external agent may have under way over MCP at this instance"`
	MCPSessions    int           `name:"mcp_sessions" default:"2000" help:"how many MCP sessions one external agent may have open at this instance"`
	MCPHeldWait    time.Duration `name:"mcp_held_wait" default:"50s" help:"how long an MCP client that cannot show a person a link waits for an approval before it is told to ask again"`
	MCPTaskAfter   time.Duration `name:"mcp_task_after" default:"500ms" help:"how long a call takes before an MCP client that declares the tasks extension is answered with a task, which it polls"`
	ClientPrivate  string        `name:"client_documents_private" help:"addresses, such as 10.1.2.3:443, where metadata documents of MCP clients may be fetched though they are not public, separated by commas"`
	IssuersFile    string        `name:"issuers_file" help:"YAML file with the authorization servers, besides our own, whose tokens the MCP endpoint takes; default: none"`
	MCPRate        int           `name:"mcp_rate" default:"50" help:"how many calls, lists and searches per second one external agent may make over MCP at this instance, over a while; 0: as many as it likes"`
	MCPBurst       int           `name:"mcp_burst" default:"100" help:"how many calls it may make at once before that counts"`
	MaxTails       int           `name:"max_tails" default:"200" help:"how many event streams may be open at once"`
}

func (c Config) validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return problem.New(problem.Invalid, "listen %q is not host:port", c.Listen)
	}
	if c.MaxTails < 1 {
		return problem.New(problem.Invalid, "max_tails %d is below 1", c.MaxTails)
	}
	if c.MCPCalls < 1 || c.MCPSessions < 1 || c.MCPHeldWait < 0 || c.MCPHeldWait > 10*time.Minute {
		return problem.New(problem.Invalid, "mcp_calls and mcp_sessions are at least 1, and mcp_held_wait is within 10m")
	}
	if c.MCPTaskAfter < 0 || c.MCPTaskAfter > 10*time.Minute {
		return problem.New(problem.Invalid, "mcp_task_after %s is outside [0, 10m]", c.MCPTaskAfter)
	}
	if c.MCPRate < 0 || c.MCPRate > 0 && c.MCPBurst < 1 {
		return problem.New(problem.Invalid, "mcp_rate is not below 0, and mcp_burst at least 1 where there is a rate")
	}
	if _, err := issuer.Load(c.IssuersFile); err != nil {
		return err
	}
	if _, err := oauth.NewDocuments(c.documentsPrivate(), egress.Rule{}); err != nil {
		return problem.Wrap(err, problem.Invalid, "client_documents_private is not a list of addresses: %s", problem.DetailOf(err).Message)
	}
	if c.ConnectorsURL != "" {
		if u, err := url.Parse(c.ConnectorsURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return problem.New(problem.Invalid, "connectors_url %q is not an http(s) URL", c.ConnectorsURL)
		}
	}
	if c.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return problem.New(problem.Invalid, "public_url %q is not an http(s) URL", c.PublicURL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return problem.New(problem.Invalid, "public_url %q has more than a scheme and a host; the console is at the top of its site", c.PublicURL)
	}
	return nil
}

// site is where browsers find the gateway, which listens on addr.
func (c Config) site(addr net.Addr) *url.URL {
	if c.PublicURL != "" {
		u, _ := url.Parse(c.PublicURL) // validated
		return u
	}
	host, port, _ := net.SplitHostPort(addr.String()) // an address that is listened on
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
}

func (c Config) hosts() []string { return split(c.Hosts) }

func (c Config) documentsPrivate() []string { return split(c.ClientPrivate) }

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
