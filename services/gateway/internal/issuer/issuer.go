package issuer

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of tokens: their size in bytes, and how far clocks may be apart.
const (
	maxToken = 8 << 10
	skew     = 30 * time.Second
)

// Issuers takes the tokens of some issuers.
type Issuers struct {
	by      map[string]*keys
	ways    *egress.Origins
	now     func() time.Time
	stop    context.CancelFunc
	running sync.WaitGroup // fetches
}

// New makes it; Close ends it. rule is how keys are fetched beyond the usual.
func New(list []Issuer, rule egress.Rule) *Issuers {
	rule.Methods, rule.MaxBytes, rule.Timeout, rule.MaxRedirects = []string{http.MethodGet}, maxKeys, fetchWait, -1
	is := &Issuers{by: map[string]*keys{}, ways: egress.NewOrigins(rule), now: time.Now}
	ctx, stop := context.WithCancel(context.Background())
	is.stop = stop
	for _, one := range list {
		is.by[one.Issuer] = &keys{of: one, ways: is.ways, now: func() time.Time { return is.now() }, ctx: ctx, running: &is.running}
	}
	return is
}

// Close ends what is being fetched, and lets go of connections.
func (is *Issuers) Close() {
	is.stop()
	is.running.Wait()
	is.ways.CloseIdleConnections()
}

// Looks says whether a text can be such a token; whether it is one, Verify says.
func (is *Issuers) Looks(text string) bool { return len(is.by) > 0 && strings.Count(text, ".") == 2 }

// Advertised are the issuers that clients are sent to.
func Advertised(list []Issuer) (out []string) {
	for _, one := range list {
		if one.Advertise {
			out = append(out, one.Issuer)
		}
	}
	return out
}

// Claimed is what a token says, verified.
type Claimed struct {
	Tenant    id.Tenant
	Agent     id.Agent
	Issuer    string
	Token     id.Token // stands for what its issuer renews: issuer, subject and client
	ExpiresAt time.Time
}

// Verify says which agent a token is of. covers says whether an audience is the endpoint that is called. What the token holds is
// not repeated in a problem. Problems: unauthenticated, unavailable.
func (is *Issuers) Verify(ctx context.Context, text string, covers func(audience string) bool) (c Claimed, err error) {
	no := func(format string, args ...any) (Claimed, error) {
		return Claimed{}, problem.New(problem.Unauthenticated, format, args...)
	}
	if len(text) > maxToken {
		return no("the token is over %d bytes", maxToken)
	}
	parsed, err := jwt.ParseSigned(text, allowed)
	if err != nil || len(parsed.Headers) != 1 {
		return no("the token is no JWT with a signature of a public key")
	}
	var peek jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&peek); err != nil {
		return no("the token's claims cannot be read")
	}
	k, known := is.by[peek.Issuer]
	if !known {
		return no("the token's issuer is none that this server takes tokens of")
	}
	head := parsed.Headers[0]
	fits := false
	for _, a := range k.of.algorithms {
		fits = fits || string(a) == head.Algorithm
	}
	if !fits {
		return no("the token is signed in a way that is not agreed with its issuer")
	}
	if typ, _ := head.ExtraHeaders["typ"].(string); typ != "" && !strings.EqualFold(typ, "at+jwt") && !strings.EqualFold(typ, "application/at+jwt") && !strings.EqualFold(typ, "JWT") {
		return no("the token is of another type than an access token")
	}
	key, err := k.find(ctx, head.KeyID, jose.SignatureAlgorithm(head.Algorithm))
	if err != nil {
		return Claimed{}, err
	}
	var claims jwt.Claims
	all := map[string]any{}
	if err := parsed.Claims(key.Key, &claims, &all); err != nil {
		return no("the token's signature is not its issuer's")
	}
	now := is.now()
	switch {
	case claims.Expiry == nil:
		return no("the token never expires, which is not taken")
	case now.After(claims.Expiry.Time().Add(skew)):
		return no("the token expired")
	case claims.NotBefore != nil && now.Add(skew).Before(claims.NotBefore.Time()), claims.IssuedAt != nil && now.Add(skew).Before(claims.IssuedAt.Time()):
		return no("the token is of the future; is a clock wrong?")
	}
	if want := k.of.Audience; want != "" {
		covers = func(audience string) bool { return audience == want }
	}
	fits = false
	for _, audience := range claims.Audience {
		fits = fits || covers(audience)
	}
	if !fits {
		return no("the token is for another audience than this endpoint")
	}
	name, err := k.of.mapping.Of(all)
	if err != nil {
		return no("the token is valid, and is no agent's: its issuer's rule gives no name for it")
	}
	agent, err := id.Named[id.Agent](name)
	if err != nil {
		return no("the token is valid, and is no agent's: its issuer's rule gives a name that is none")
	}
	client, _ := all["client_id"].(string)
	if client == "" {
		client, _ = all["azp"].(string)
	}
	return Claimed{Tenant: k.of.Tenant, Agent: agent, Issuer: k.of.Issuer, ExpiresAt: claims.Expiry.Time(),
		Token: id.Derive[id.Token](string(k.of.Tenant), string(agent), k.of.Issuer, claims.Subject, client)}, nil
}
