package egress

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
)

// Origins makes ways out that lead to one origin each, such as a provider's API, and keeps them, so that connections
// are used again. A way out is known by its origin and its exceptions.
type Origins struct {
	rule Rule // Hosts and AllowPrivate are set per origin

	mu   sync.Mutex
	open map[string]*Client
}

// maxOrigins is how many ways out are kept; the cheapest to make anew, any, goes when there are more.
const maxOrigins = 256

// NewOrigins makes ways out that follow rule.
func NewOrigins(rule Rule) *Origins { return &Origins{rule: rule, open: map[string]*Client{}} }

// To gives the way out to the origin of rawURL. private are addresses that may be dialled though not public.
func (o *Origins) To(rawURL string, private []string) (http.RoundTripper, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%.200q is not a URL", rawURL)
	}
	at, err := inspect(u)
	if err != nil {
		return nil, err
	}
	host := net.JoinHostPort(at.host, strconv.Itoa(int(at.port)))
	key := strings.Join(append([]string{host}, private...), " ")
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.open[key]; ok {
		return c, nil
	}
	rule := o.rule
	rule.Hosts, rule.AllowPrivate = []string{host}, private
	c, err := New(rule)
	if err != nil {
		return nil, err
	}
	for k, old := range o.open {
		if len(o.open) < maxOrigins {
			break
		}
		old.CloseIdleConnections()
		delete(o.open, k)
	}
	o.open[key] = c
	return c, nil
}

// CloseIdleConnections lets go of connections that nobody uses.
func (o *Origins) CloseIdleConnections() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.open {
		c.CloseIdleConnections()
	}
}
