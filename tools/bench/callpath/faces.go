package callpath

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/approvals"
	"github.com/execwarden/execwarden/services/gateway"
)

// startFaces starts what external agents reach a house by.
func (h *house) startFaces(ctx context.Context, tokenFile string) error {
	var approving approvals.Config
	var facing gateway.Config
	for _, cfg := range []any{&approving, &facing} {
		if err := boot.Defaults(cfg); err != nil {
			return err
		}
	}
	facing.Listen, facing.OwnerTokenFile = "127.0.0.1:0", tokenFile
	facing.MCPCalls, facing.MCPSessions = 2000, 5000 // one agent stands for many
	err := h.run(ctx, schemas.Approvals, func(d boot.Deps) (boot.Service, error) { return approvals.New(approving, d) })
	if err != nil {
		return err
	}
	err = h.run(ctx, schemas.Gateway, func(d boot.Deps) (_ boot.Service, err error) {
		h.gateway, err = gateway.New(facing, d)
		return h.gateway, err
	})
	if err != nil {
		return err
	}
	if _, err := h.gateway.Addr(ctx); err != nil {
		return err
	}
	token, err := os.ReadFile(tokenFile)
	h.token = strings.TrimSpace(string(token))
	return err
}

// ask asks the API as the owner does.
func (h *house) ask(ctx context.Context, method, path string, in, out any) error {
	addr, err := h.gateway.Addr(ctx)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr.String()+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// outsider makes an external agent with so many grants, of which one is of the tool, and gives its token.
func (h *house) outsider(ctx context.Context, grants int) (token string, err error) {
	u, err := url.Parse(h.provider.URL())
	if err != nil {
		return "", err
	}
	def := connection.Defined{Connection: "con_bench", Type: connection.MCP, URL: u.String(), Private: []string{u.Host}, Trusted: true}
	if err := h.ask(ctx, http.MethodPut, "/v1/connections/bench", def, nil); err != nil {
		return "", err
	}
	if err := h.ask(ctx, http.MethodPut, "/v1/agents/outside", agent.Defined{Agent: "agt_outside", Hosting: agent.External}, nil); err != nil {
		return "", err
	}
	for i := range grants {
		g := grant.Created{Grant: id.Grant(fmt.Sprintf("grt_g%d", i)), Agent: "agt_outside", Selector: grant.Selector{Tool: pureTool}, Approval: grant.Never}
		if i > 0 {
			g.Selector.Tool = fmt.Sprintf("bench.other_%d*", i)
		}
		if err := h.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/grants/g%d", i), g, nil); err != nil {
			return "", err
		}
	}
	var issued struct {
		Secret string `json:"secret"`
	}
	err = h.ask(ctx, http.MethodPost, "/v1/tokens", map[string]string{"agent": "agt_outside"}, &issued)
	return issued.Secret, err
}
