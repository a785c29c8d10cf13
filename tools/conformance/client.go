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
	"os"
	"strings"
	"sync"
	"time"

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

	mu   sync.Mutex
	ends map[string]error // by scenario
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
	t := &trials{site: s, person: p, at: "http://" + l.Addr().String(), ended: make(chan error, 1), turns: make(chan struct{}, trialsAtOnce), ends: map[string]error{}}
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
	t.mu.Lock()
	t.ends[one.Scenario] = err
	t.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintln(w, err) // the suite keeps it beside its checks
	}
}

// refusals are the scenarios in which something has to be refused, and what says that it was for the right reason. All others go
// through.
var refusals = map[string]string{
	"auth/resource-mismatch":        "and the connection's URL is not below that",
	"auth/metadata-issuer-mismatch": `calls itself "https://attacker.example.com"`,
	"auth/iss-normalized":           notAsked,
	"auth/iss-supported-missing":    notAsked,
	"auth/iss-unexpected":           notAsked,
	"auth/iss-wrong-issuer":         notAsked,
	"auth/scope-retry-limit":        "which the login asked for in vain",
	"json-schema-ref-no-deref":      "method not found", // its server lists a tool, and answers no call
}

const notAsked = "the answer does not come from the authorization server that was asked"

// judge says of each required scenario that ended otherwise than it should: the suite sees only what reached it, and what never
// came is what some of its scenarios want to see.
func (t *trials) judge(l *leg) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, scenario := range l.required {
		end, tried := t.ends[scenario]
		want, refuses := refusals[scenario]
		if !tried || refuses && (end == nil || !strings.Contains(end.Error(), want)) || !refuses && end != nil {
			l.failed[scenario] = append(l.failed[scenario], fmt.Sprintf("it ended with %v", end))
		}
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
