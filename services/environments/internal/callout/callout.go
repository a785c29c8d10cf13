// Package callout answers the NATS server that asks whether to let somebody onto the bus whom it does not know: a
// connector that proves its NKey, with leave for its own environment's subjects, for a short time. It follows NATS's
// "auth callout" (nats.io, Authorization Request and Response claims).
package callout

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of one connector on the bus.
const (
	maxSubscriptions = 64
	maxRequest       = 64 << 10 // bytes of what the server asks
)

var instance = regexp.MustCompile(`^[a-z0-9]{20,64}$`)

// Desk answers.
type Desk struct {
	issuer nkeys.KeyPair
	whose  func(nkey string) (id.Tenant, id.Environment, bool)
	now    func() time.Time
}

// New makes a desk that signs with the account key of that seed. whose says which environment a public NKey is of.
func New(seed vault.Secret, whose func(nkey string) (id.Tenant, id.Environment, bool)) (*Desk, error) {
	pair, err := nkeys.FromSeed([]byte(seed.Reveal()))
	if err != nil {
		return nil, err
	}
	if public, err := pair.PublicKey(); err != nil || !nkeys.IsValidPublicAccountKey(public) {
		return nil, errors.New("the callout seed is not an account's")
	}
	return &Desk{issuer: pair, whose: whose, now: time.Now}, nil
}

// Answer reads a request and gives the response's text. Whoever is refused learns only that; reason is for operators.
func (d *Desk) Answer(request []byte) (response string, who string, reason error) {
	if len(request) > maxRequest {
		return "", "", errors.New("the request is too large")
	}
	asked, err := jwt.DecodeAuthorizationRequestClaims(string(request))
	if err != nil {
		return "", "", fmt.Errorf("the request cannot be read: %w", err)
	}
	out := jwt.NewAuthorizationResponseClaims(asked.UserNkey)
	out.Audience = asked.Server.ID
	pass, who, reason := d.admit(asked)
	if reason != nil {
		out.Error = "not known"
	}
	out.Jwt = pass
	response, err = out.Encode(d.issuer)
	if err != nil {
		return "", who, err
	}
	return response, who, reason
}

// admit makes the pass of a connector, or says why there is none.
func (d *Desk) admit(asked *jwt.AuthorizationRequestClaims) (pass, who string, err error) {
	given := asked.ConnectOptions
	if asked.ClientInformation.Type != "websocket" {
		return "", "", fmt.Errorf("a %q connection as user %.60q", asked.ClientInformation.Type, given.Username)
	}
	key, err := nkeys.FromPublicKey(given.Nkey)
	if err != nil || !nkeys.IsValidPublicUserKey(given.Nkey) {
		return "", "", errors.New("no NKey of a user")
	}
	signature, err := base64.RawURLEncoding.DecodeString(given.SignedNonce)
	if err != nil || asked.ClientInformation.Nonce == "" || key.Verify([]byte(asked.ClientInformation.Nonce), signature) != nil {
		return "", given.Nkey, errors.New("the NKey is not proven")
	}
	tenant, env, ok := d.whose(given.Nkey)
	if !ok {
		return "", given.Nkey, errors.New("the NKey is no connector's, or not any more")
	}
	// It chooses the name of its life. Another life's it cannot know, and so hears nothing that is asked of that.
	life, ok := strings.CutPrefix(given.Name, connector.ClientName)
	if !ok || !instance.MatchString(life) {
		return "", given.Nkey, errors.New("the connection is not named as a connector's")
	}
	may := bus.Connector(tenant, env, life, given.Nkey)
	user := jwt.NewUserClaims(asked.UserNkey)
	user.Name, user.Audience = may.Name, "$G"
	user.Expires = d.now().Add(connector.PassLife).Unix()
	user.AllowedConnectionTypes.Add(jwt.ConnectionTypeWebsocket)
	user.Pub.Allow, user.Sub.Allow = may.Publish, may.Subscribe
	user.Resp = &jwt.ResponsePermission{MaxMsgs: may.Responses, Expires: may.ResponseTTL}
	user.Limits.Subs, user.Limits.Payload = maxSubscriptions, 1<<20
	pass, err = user.Encode(d.issuer)
	return pass, may.Name, err
}
