package callout_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/callout"
)

func pair(t *testing.T, make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	p, err := make()
	if err != nil {
		t.Fatal(err)
	}
	public, err := p.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return p, public
}

// A connector that proves its key is let in for its own environment, for a while; everybody else learns that they are not.
func TestAnswer(t *testing.T) {
	issuer, _ := pair(t, nkeys.CreateAccount)
	seed, err := issuer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	key, public := pair(t, nkeys.CreateUser)
	stranger, strange := pair(t, nkeys.CreateUser)
	server, serverID := pair(t, nkeys.CreateServer)
	_, asked := pair(t, nkeys.CreateUser)
	desk, err := callout.New(vault.NewSecret(string(seed)), func(nkey string) (id.Tenant, id.Environment, bool) {
		return "tnt_a", "env_box", nkey == public
	})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k nkeys.KeyPair, nonce string) string {
		sig, err := k.Sign([]byte(nonce))
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(sig)
	}
	const life = "abcdefghijklmnopqrstuvwxyz"
	for name, c := range map[string]struct {
		change func(*jwt.AuthorizationRequestClaims)
		in     bool
	}{
		"the connector": {func(*jwt.AuthorizationRequestClaims) {}, true},
		"nobody":        {func(r *jwt.AuthorizationRequestClaims) { r.ConnectOptions = jwt.ConnectOptions{} }, false},
		"a service's user": {func(r *jwt.AuthorizationRequestClaims) {
			r.ConnectOptions = jwt.ConnectOptions{Username: "boot", Password: "x"}
		}, false},
		"without a name":      {func(r *jwt.AuthorizationRequestClaims) { r.ConnectOptions.Name = "" }, false},
		"with every life":     {func(r *jwt.AuthorizationRequestClaims) { r.ConnectOptions.Name = connector.ClientName + "*" }, false},
		"over TCP":            {func(r *jwt.AuthorizationRequestClaims) { r.ClientInformation.Type = "nats" }, false},
		"without a signature": {func(r *jwt.AuthorizationRequestClaims) { r.ConnectOptions.SignedNonce = "" }, false},
		"without a nonce":     {func(r *jwt.AuthorizationRequestClaims) { r.ClientInformation.Nonce = "" }, false},
		"another nonce":       {func(r *jwt.AuthorizationRequestClaims) { r.ClientInformation.Nonce = "other" }, false},
		"another's signature": {func(r *jwt.AuthorizationRequestClaims) { r.ConnectOptions.SignedNonce = sign(stranger, "nonce") }, false},
		"a stranger": {func(r *jwt.AuthorizationRequestClaims) {
			r.ConnectOptions.Nkey, r.ConnectOptions.SignedNonce = strange, sign(stranger, "nonce")
		}, false},
		"an account's key": {func(r *jwt.AuthorizationRequestClaims) {
			_, r.ConnectOptions.Nkey = pair(t, nkeys.CreateAccount)
		}, false},
	} {
		r := jwt.NewAuthorizationRequestClaims("x")
		r.UserNkey, r.Server.ID = asked, serverID
		r.ClientInformation = jwt.ClientInformation{Type: "websocket", Nonce: "nonce"}
		r.ConnectOptions = jwt.ConnectOptions{Nkey: public, SignedNonce: sign(key, "nonce"), Name: connector.ClientName + life}
		c.change(r)
		text, err := r.Encode(server)
		if err != nil {
			t.Fatal(err)
		}
		answer, _, reason := desk.Answer([]byte(text))
		got, err := jwt.DecodeAuthorizationResponseClaims(answer)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Subject != asked || got.Audience != serverID || (reason == nil) != c.in || (got.Error == "") != c.in || (got.Jwt != "") != c.in {
			t.Errorf("%s: %+v, reason %v", name, got, reason)
		}
		if !c.in {
			if got.Error != "not known" {
				t.Errorf("%s learns %q", name, got.Error)
			}
			continue
		}
		user, err := jwt.DecodeUserClaims(got.Jwt)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(user.Sub.Allow, "ew.env.v1.tnt_a.env_box."+life+".*") || !slices.Contains(user.Sub.Allow, "ew.visit.v1.to.tnt_a.env_box."+life+".*.*") || len(user.Sub.Allow) != 3 {
			t.Errorf("it hears %v", user.Sub.Allow)
		}
		for _, subject := range slices.Concat(user.Pub.Allow, user.Sub.Allow) {
			if !strings.Contains(subject, ".tnt_a.env_box.") && !strings.HasPrefix(subject, "_INBOX."+public) {
				t.Errorf("the connector may use %s", subject)
			}
		}
		if user.Expires == 0 || user.Subject != asked || !slices.Equal(user.AllowedConnectionTypes, []string{jwt.ConnectionTypeWebsocket}) {
			t.Errorf("the pass %+v", user)
		}
	}
	for name, raw := range map[string]string{"nothing": "", "text": "hello", "half a token": "eyJ0eXAiOiJKV1QifQ.e30", "too long": strings.Repeat("a", 100_000)} {
		if answer, _, reason := desk.Answer([]byte(raw)); reason == nil || answer != "" {
			t.Errorf("%s: %q, %v", name, answer, reason)
		}
	}
}

func TestSeed(t *testing.T) {
	user, _ := pair(t, nkeys.CreateUser)
	seed, _ := user.Seed()
	for name, text := range map[string]string{"nothing": "", "text": "hello", "a user's": string(seed)} {
		if _, err := callout.New(vault.NewSecret(text), nil); err == nil {
			t.Errorf("%s is taken for an account's seed", name)
		}
	}
}
