package up

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// What an agent is shown is what it may call, through every door, whatever grants it has: none refuses what another lists.
func TestMCPVisibleIsCallable(t *testing.T) {
	const rounds = 12
	w := newMCPWorld(t, nil)
	w.agent("a")
	var tools []string
	for _, name := range []string{"one", "two"} {
		w.provider(name, many(t, 6), 6)
		for i := range 6 {
			tools = append(tools, fmt.Sprintf("%s.tool_%03d", name, i))
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	doors := map[string]*mcp.ClientSession{}
	for _, era := range []string{sessions, without} {
		for _, path := range []string{"", "/c/one", "/c/two"} {
			doors[era+" /mcp"+path], _ = w.dial(t, "a", era, "/mcp"+path, nil)
		}
	}
	made := map[string]bool{}
	for range rounds {
		for name := range made {
			if random.IntN(2) == 0 {
				_, err := w.Revoke(t.Context(), name, "another round")
				must(t, err)
				delete(made, name)
			}
		}
		for range 1 + random.IntN(3) {
			name := fmt.Sprintf("g%d-%d", len(made), random.IntN(1e6))
			selector := []string{"*.*", "one.*", "two.*", "*.tool_00" + fmt.Sprint(random.IntN(6)), tools[random.IntN(len(tools))], "one.tool_*"}[random.IntN(6)]
			w.grant("a", name, selector, func(g *grant.Created) {
				if random.IntN(3) == 0 {
					g.Verdict = grant.Deny
				}
				if random.IntN(4) == 0 {
					g.Selector.Effects = append(g.Selector.Effects, "opaque") // which no tool here is
				}
				g.Grant = id.Grant("grt_" + name)
			})
			made[name] = true
		}
		for name, s := range doors {
			var shown []string
			buskit.Eventually(t, "the grants are known", func() bool { // a grant is answered when it is stored
				shown = nil
				for tool, err := range s.Tools(t.Context(), nil) {
					must(t, err)
					shown = append(shown, tool.Name)
				}
				return slices.Equal(shown, called(t, s, name, tools))
			})
		}
	}
	t.Logf("%d grants in the end", len(slices.Collect(maps.Keys(made))))
}

// called gives the tools of a door that can be called, in order.
func called(t *testing.T, s *mcp.ClientSession, door string, tools []string) (out []string) {
	for _, full := range tools {
		name := full[:3] + "__" + full[4:]
		if of := door[len("2025-11-25 /mcp"):]; of == "/c/"+full[:3] {
			name = full[4:]
		} else if of != "" {
			continue
		}
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
		if err == nil {
			out = append(out, name)
		} else if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return out
}
