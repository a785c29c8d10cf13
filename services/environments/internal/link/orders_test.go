package link

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/environments/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine notes what it is told to do, and says that it did.
type machine struct {
	begun, looked int
	receipts      map[string]bool
}

func (*machine) Borrow(host.Broker) {}

func (m *machine) OpenVisit(context.Context, connector.Visit, connector.OpenVisit, bool, func([]byte) error) error {
	return nil
}
func (m *machine) TakeVisit(id.Visit, int, []byte)             {}
func (m *machine) EndedVisits() []visit.Ended                  { return nil }
func (m *machine) ToldVisit(id.Visit)                          {}
func (m *machine) Manifest() environment.Manifest              { return environment.Manifest{} }
func (m *machine) Open(context.Context, connector.Lease) error { return nil }
func (m *machine) Known() []connector.Lease                    { return nil }
func (m *machine) Probe(context.Context) error                 { return nil }
func (m *machine) EndTooLarge(context.Context)                 {}
func (m *machine) Execs() int                                  { return 0 }
func (m *machine) OrphanGrace() time.Duration                  { return 0 }
func (m *machine) Cancel(context.Context, connector.Cancel) connector.Answer {
	return connector.Answer{}
}
func (m *machine) End(context.Context, connector.End) (connector.Ended, error) {
	return connector.Ended{}, nil
}
func (m *machine) Checkpoint(context.Context, connector.Checkpoint) (connector.Checkpointed, error) {
	return connector.Checkpointed{}, nil
}
func (m *machine) Restore(context.Context, connector.Restore) (connector.Copied, error) {
	return connector.Copied{}, nil
}
func (m *machine) Clone(context.Context, connector.Clone) (connector.Copied, error) {
	return connector.Copied{}, nil
}
func (m *machine) PassOn(context.Context, func(context.Context, host.Printed) error) error {
	return nil
}

func (m *machine) Do(_ context.Context, o connector.Order) connector.Answer {
	if m.receipts[string(o.Call)] {
		return connector.Answer{State: connector.Done}
	}
	if o.Only {
		m.looked++
		return connector.Answer{State: connector.NotBegun}
	}
	m.begun++
	m.receipts[string(o.Call)] = true
	return connector.Answer{State: connector.Done}
}

// An order counts with a permit of the deployment's broker, for exactly this call on this attachment, in its time, under a
// lease that is held. Anything else begins nothing.
func TestOrders(t *testing.T) {
	rootPublic, root, _ := ed25519.GenerateKey(nil)
	brokerPublic, broker, _ := ed25519.GenerateKey(nil)
	_, stranger, _ := ed25519.GenerateKey(nil)
	now := time.Now()
	published := key.Published{Key: "key_broker", Purpose: permit.Purpose, Public: brokerPublic, NotBefore: now.UTC()}
	published.Signature = ed25519.Sign(root, published.SignedBytes())
	args := []byte(`{"argv":["<true>"]}`)
	for name, c := range map[string]struct {
		claims func(*permit.Claims)
		order  func(*connector.Order)
		signer ed25519.PrivateKey
		link   func(*Link)
		want   connector.State
		code   problem.Code
		later  bool
	}{
		"as it should be":        {want: connector.Done},
		"no permit":              {order: func(o *connector.Order) { o.Permit = "" }, want: connector.Refused, code: problem.Denied},
		"a stranger's permit":    {signer: stranger, want: connector.Refused, code: problem.Denied},
		"for another executor":   {claims: func(c *permit.Claims) { c.Audience = call.Upstream }, want: connector.Refused, code: problem.Denied},
		"of another tenant":      {claims: func(c *permit.Claims) { c.Tenant = "tnt_b" }, want: connector.Refused, code: problem.Denied},
		"of another run":         {claims: func(c *permit.Claims) { c.Run = "run_2" }, want: connector.Refused, code: problem.Denied},
		"of another call":        {order: func(o *connector.Order) { o.Call = "call_2" }, want: connector.Refused, code: problem.Denied},
		"of another tool":        {order: func(o *connector.Order) { o.Tool = "machine.write_file" }, want: connector.Refused, code: problem.Denied},
		"with other arguments":   {order: func(o *connector.Order) { o.Args = []byte(`{"argv":["rm"]}`) }, want: connector.Refused, code: problem.Denied},
		"spelled otherwise":      {order: func(o *connector.Order) { o.Args = []byte(`{"argv":["\u003ctrue\u003e"]}`) }, want: connector.Refused, code: problem.Denied},
		"for another attachment": {claims: func(c *permit.Claims) { c.Attachment = "att_2" }, want: connector.Refused, code: problem.Denied},
		"for an earlier epoch":   {claims: func(c *permit.Claims) { c.Epoch = 1 }, want: connector.Refused, code: problem.Denied},
		"for no attachment":      {claims: func(c *permit.Claims) { c.Attachment, c.Epoch = "", 0 }, want: connector.Refused, code: problem.Denied},
		"expired":                {claims: func(c *permit.Claims) { c.IssuedAt, c.ExpiresAt = now.Add(-time.Hour), now.Add(-59*time.Minute) }, want: connector.Refused, code: problem.Expired},
		"from the future":        {claims: func(c *permit.Claims) { c.IssuedAt, c.ExpiresAt = now.Add(time.Hour), now.Add(61*time.Minute) }, want: connector.Refused, code: problem.Denied},
		"with a clock that is wrong": {link: func(l *Link) { l.clock.Store(int64(-48 * time.Hour)) }, claims: func(c *permit.Claims) {
			c.IssuedAt, c.ExpiresAt = now.Add(-48*time.Hour), now.Add(-48*time.Hour+time.Minute)
		}, want: connector.Done},
		"under an attachment that ended": {link: func(l *Link) { l.leases.end("att_1") }, want: connector.Refused, code: problem.Denied},
		"under a lease that lapsed":      {link: func(l *Link) { l.leases.recall([]connector.Lease{{Attachment: "att_1", Volume: "main", Epoch: 2}}) }, later: true, code: problem.Unavailable},
		"before these receipts":          {link: func(l *Link) { later := now.Add(time.Minute); l.since.Store(&later) }, want: connector.Unknown, code: problem.Unknown},
	} {
		m := &machine{receipts: map[string]bool{}}
		l := &Link{cfg: Config{}, machine: m, leases: newLeases(time.Now), keys: permit.NewKeyring(rootPublic)}
		l.identity.Tenant, l.identity.Environment = "tnt_a", "env_box"
		if err := l.keys.Add(published); err != nil {
			t.Fatal(err)
		}
		l.leases.renew([]connector.Lease{{Attachment: "att_1", Volume: "main", Epoch: 2}}, connector.DefaultLife)
		claims := permit.Claims{Audience: call.Exec, Tenant: "tnt_a", Run: "run_1", Call: "call_1", Tool: "machine.exec", ArgsDigest: permit.Digest(args), Requested: 7,
			IssuedAt: now, ExpiresAt: now.Add(time.Minute), Attachment: "att_1", Epoch: 2}
		if c.claims != nil {
			c.claims(&claims)
		}
		if c.signer == nil {
			c.signer = broker
		}
		text, err := permit.NewSigner("key_broker", c.signer).Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		o := connector.Order{Attachment: "att_1", Epoch: 2, Volume: "main", Run: "run_1", Call: "call_1", Tool: "machine.exec", Requested: 7, Args: args, Permit: text, AdmittedAt: now}
		if c.order != nil {
			c.order(&o)
		}
		if c.link != nil {
			c.link(l)
		}
		raw, err := json.Marshal(o) // as it comes over the bus
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		a, err := l.order(t.Context(), o)
		if c.later {
			if problem.CodeOf(err) != c.code || m.begun != 0 {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			continue
		}
		if err != nil || a.State != c.want || problem.Code(a.Code) != c.code || (m.begun > 0) != (c.want == connector.Done) {
			t.Errorf("%s: %+v, %v, begun %d", name, a, err, m.begun)
		}
	}
}
