package up

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/natsd"
	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/approvals"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/services/gateway"
)

// Config says how to run.
type Config struct {
	DataDir      string        `name:"data" help:"directory of everything that is kept; default: /var/lib/execwarden as root, else the user's state folder"`
	Listen       string        `name:"listen" default:"127.0.0.1:8080" help:"address of the API and the console"`
	HooksListen  string        `name:"hooks_listen" default:"127.0.0.1:8081" help:"address that takes webhook deliveries"`
	OpsListen    string        `name:"ops_listen" default:"127.0.0.1:9464" help:"address of /metrics, /healthz and /readyz"`
	NATSListen   string        `name:"nats_listen" help:"address of NATS over TCP; default: in-process only"`
	PublicURL    string        `name:"public_url" help:"where browsers find the console; default: http:// and the address it listens on"`
	SyncInterval time.Duration `name:"sync_interval" default:"0s" help:"how often NATS fsyncs; 0s: before each acknowledgement. Anything else is not power-loss safe"`
	PostgresURL  string        `name:"postgres_url" help:"an external PostgreSQL database instead of the private one"`
	WorkerPath   string        `name:"worker_path" help:"the jsworker program; default: beside this one"`
	AllowWeak    bool          `name:"allow_weak_sandbox" default:"false" help:"run scripts even where workers cannot be isolated; for development only"`
	ApprovalLife time.Duration `name:"approval_life" default:"24h" help:"how long a held call waits for a member"`
	StdioFile    string        `name:"stdio_file" help:"YAML file with the programs that connections of URL stdio:NAME run beside the broker; default: none"`
	IssuersFile  string        `name:"issuers_file" help:"YAML file with the authorization servers, besides our own, whose tokens the MCP endpoint takes; default: none"`
	Documents    string        `name:"client_documents_private" help:"addresses, such as 10.1.2.3:443, where metadata documents of MCP clients may be fetched though they are not public, separated by commas"`
	MCPRate      int           `name:"mcp_rate" default:"50" help:"how many calls per second one external agent may make over MCP, over a while; 0: as many as it likes"`
	MCPBurst     int           `name:"mcp_burst" default:"100" help:"how many calls it may make at once before that counts"`
	LogFormat    string        `name:"log_format" default:"text" help:"text or json"`
	LogLevel     string        `name:"log_level" default:"warn" help:"debug, info, warn or error"`
	approvals.SMTP
	boot.MasterKey

	started  func(*natsd.Server, *postgres.Server) // a seam for fault tests, which stop and start them
	machines func(*environments.Config)            // a seam for fault tests, which wait for shorter
	gateway  func(*gateway.Config)                 // the same
}

func (c Config) withDefaults() (Config, error) {
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir()
	}
	abs, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, problem.Wrap(err, problem.Invalid, "data directory %s", c.DataDir)
	}
	c.DataDir = abs
	if c.WorkerPath == "" {
		self, err := os.Executable()
		if err != nil {
			return c, problem.Wrap(err, problem.Internal, "this program's own path is not known; set worker_path")
		}
		c.WorkerPath = filepath.Join(filepath.Dir(self), "jsworker")
	}
	if _, err := os.Stat(c.WorkerPath); err != nil {
		return c, problem.Wrap(err, problem.Invalid, "the sandbox's worker is not at %s; build services/runtime/cmd/jsworker with CGO_ENABLED=0 beside this program, or set worker_path", c.WorkerPath)
	}
	if c.SyncInterval < 0 || c.SyncInterval > 10*time.Minute {
		return c, problem.New(problem.Invalid, "sync_interval %s is outside [0s, 10m]", c.SyncInterval)
	}
	return c, nil
}

// consoleURL is where notices link to, "" when that follows from a port that is not known yet.
func (c Config) consoleURL() string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" {
		return ""
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "localhost" // of all addresses, the one that is there for certain
	}
	return "http://" + net.JoinHostPort(host, port)
}

// ownHosts are where the process itself is reached, as far as that is known: no script fetches there. What listens at
// all addresses is reached at each of this machine.
func (c Config) ownHosts(machine []netip.Addr) string {
	var own []string
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		own = append(own, u.Hostname())
	}
	for _, listen := range []string{c.Listen, c.HooksListen, c.OpsListen, c.NATSListen} {
		host, port, err := net.SplitHostPort(listen)
		if err != nil || port == "0" {
			continue // nowhere, or where only the process knows
		}
		switch a, err := netip.ParseAddr(host); {
		case host == "" || err == nil && a.IsUnspecified():
			for _, a := range machine {
				own = append(own, net.JoinHostPort(a.String(), port))
			}
		case err != nil: // a name, such as localhost, is denied as what it stands for on most machines too
			own = append(own, net.JoinHostPort(host, port), net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port))
		default:
			own = append(own, net.JoinHostPort(host, port))
		}
	}
	return strings.Join(own, ",")
}

// machineAddresses are this machine's own, without those that hold on one link only.
func machineAddresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		list = nil // loopback remains
	}
	own := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	for _, at := range list {
		if p, err := netip.ParsePrefix(at.String()); err == nil && !p.Addr().IsLinkLocalUnicast() && !slices.Contains(own, p.Addr()) {
			own = append(own, p.Addr())
		}
	}
	return own
}

// DefaultDataDir is /var/lib/execwarden for root, since a cluster of Postgres cannot live in a home that others may
// not enter, and the state folder of the XDG base directory specification otherwise.
func DefaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/execwarden"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "execwarden")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "execwarden-data"
	}
	return filepath.Join(home, ".local", "state", "execwarden")
}

// Files of the data directory.
const (
	ownerTokenFile = "owner.token"
	endpointsFile  = "endpoints.json"
)

// workerDigest is the SHA-256 of the jsworker that was built with this program, set by the linker. Empty: not checked.
var workerDigest string
