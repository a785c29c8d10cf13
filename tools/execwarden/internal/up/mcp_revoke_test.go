package up

import (
	"context"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// When a revocation is answered, no session's next call goes through, however many there are; and each is told that its list
// changed. `make bench-mcp` measures it with 1,000.
func TestMCPRevocationReachesEverySession(t *testing.T) {
	const each = 30
	w := newMCPWorld(t, nil)
	p := provide(t, eras[without])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.grant("a", "give", "s.give")
	type open struct {
		*mcp.ClientSession
		told chan struct{}
	}
	var all []open
	for range each {
		for _, era := range []string{sessions, without} {
			o := open{told: make(chan struct{}, 1)}
			o.ClientSession, _ = w.dial(t, "a", era, "/mcp", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				select {
				case o.told <- struct{}{}:
				default:
				}
			}})
			if _, err := o.CallTool(t.Context(), &mcp.CallToolParams{Name: "s__give"}); err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
	}
	done, err := w.Revoke(t.Context(), "give", "enough")
	if err != nil || len(done.Fenced) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	var asking sync.WaitGroup
	for _, o := range all {
		asking.Go(func() {
			_, err := o.CallTool(t.Context(), &mcp.CallToolParams{Name: "s__give"})
			if code, data := wire(t, err); code != -32050 || data.Code != "denied" {
				t.Errorf("%v", err)
			}
			<-o.told
		})
	}
	asking.Wait()
}
