package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
)

// A token of a company's own authorization server opens the endpoint for the agent that it names, if there is one, and nothing
// else.
func TestTokenOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	company := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256"}}})
	}))
	t.Cleanup(company.Close)
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	text := "issuers:\n  - issuer: " + company.URL + "\n    jwks: " + company.URL + "/keys\n    agent: claims.sub\n    advertise: true\n    private: ['" + company.Listener.Addr().String() + "']\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := buskit.Start(t)
	h := &house{bus: b, peersFake: newPeers(t, b)}
	h.documents.RootCAs = company.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	h.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, IssuersFile: file,
		OwnerTokenFile: filepath.Join(t.TempDir(), "owner.token")})
	h.program(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(sub, aud, jti string) string {
		t.Helper()
		text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: company.URL, Subject: sub, Audience: jwt.Audience{aud}, ID: jti, Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute))}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if doc := h.browse(t, "/.well-known/oauth-protected-resource/mcp"); !strings.Contains(doc.body, `"authorization_servers":["`+company.URL+`","`+h.base+`"]`) {
		t.Errorf("%+v", doc)
	}
	good := sign("laptop", h.base+"/mcp", "1")
	got := h.mcp(t, good, "/mcp", "", hello)
	session := got.header.Get("Mcp-Session-Id")
	if got.status != 200 || session == "" {
		t.Fatalf("%+v", got)
	}
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if got := h.mcp(t, sign("laptop", h.base+"/mcp", "2"), "/mcp", session, ping); got.status != 200 {
		t.Errorf("the next token of the same subject does not go on: %+v", got)
	}
	for name, token := range map[string]string{"another agent": sign("nobody", h.base+"/mcp", "3"), "for the API": sign("laptop", h.base+"/v1", "4"), "for one connection": sign("laptop", h.base+"/mcp/c/tickets", "5"), "a part": good[:len(good)-4]} {
		if got := h.mcp(t, token, "/mcp", "", hello); got.status != 401 || strings.Contains(got.body, token[:40]) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := h.call(t, good, "GET", "/v1/whoami", ""); got.status != 401 {
		t.Errorf("%+v", got)
	}
	// What happens to others does not end its session; what happens to its agent does.
	other := h.newToken(t, h.owner, `{"agent":"agt_laptop"}`)
	h.call(t, h.owner, "POST", "/v1/tokens/"+string(other.Token)+"/revoke", "")
	if got := h.mcp(t, good, "/mcp", session, ping); got.status != 200 {
		t.Errorf("%+v", got)
	}
	h.call(t, h.owner, "DELETE", "/v1/agents/laptop", "")
	h.over(t, good)
}
