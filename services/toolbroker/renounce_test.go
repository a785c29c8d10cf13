package toolbroker_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
)

// The token that a GitHub App got for a grant's calls is revoked with the grant; calls under others get one of their own.
func TestTokensAreRevokedWithTheGrant(t *testing.T) {
	h := start(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := json.Marshal(map[string]string{"app_id": "12", "installation_id": "100",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))})
	if err != nil {
		t.Fatal(err)
	}
	var minted, revoked atomic.Int64
	h.says(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/access_tokens"):
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"token":"ghs_%d","expires_at":%q}`, minted.Add(1), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/installation/token"):
			revoked.Add(1)
			w.WriteHeader(http.StatusNoContent)
		default:
			fmt.Fprintf(w, `{"number":7,"title":%q}`, r.Header.Get("Authorization"))
		}
	})
	u, err := url.Parse(h.github.URL)
	if err != nil {
		t.Fatal(err)
	}
	def := connection.Defined{Connection: "con_app", Type: connection.GitHub, URL: h.github.URL, Private: []string{u.Host}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: string(credential)}); err != nil {
		t.Fatal(err)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(l connection.Listed) bool { return l.Connection == def.Connection })
	h.heard(listed.Seq)
	h.grant("grt_lost", "app.issue_read", grant.Never)
	h.grant("grt_stays", "app.*", grant.Never)
	h.request("call_1", "app.issue_read", readArgs, nil)
	await[call.Finished](h, "call_1")
	h.revoke("grt_lost")
	buskit.Eventually(t, "the token is revoked", func() bool { return revoked.Load() == 1 })
	h.request("call_2", "app.issue_read", readArgs, nil)
	if got, _ := await[call.Finished](h, "call_2"); !strings.Contains(string(got.Body.Result), "ghs_2") {
		t.Errorf("%s", got.Body.Result)
	}
	if minted.Load() != 2 {
		t.Errorf("%d tokens", minted.Load())
	}
}
